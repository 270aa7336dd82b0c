"""A real control plane on this machine: etcd, kube-apiserver and kube-controller-manager, no node.

Used by the tests of this folder and by the benchmarks. Everything listens on 127.0.0.1 and lies in one directory.
"""

import http.client
import json
import os
import secrets
import shutil
import ssl
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port
from tests.processes import start
from tests.waiting import until

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytorchjob-operator"
BIN = _CACHE / "bin"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
_READY_SECONDS = 90.0
_HANDSHAKES = 5
_ERRORS = 400
_CONTROLLERS = ("garbage-collector-controller", "namespace-controller", "serviceaccount-controller")
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlaneError(Exception):
    """A program is missing, or ended, or never became ready; the message says which and what to do."""


class ControlPlane:
    """Starts the programs in `start`, ends them in `stop`; what they log is in `directory`.

    `options` are more of kube-apiserver's, from the first start; `gates` the feature gates of all programs.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Path = BIN,
        options: Sequence[str] = (),
        gates: str = "",
        controllers: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.binaries = binaries
        self.options = options
        self.gates = (f"--feature-gates={gates}",) if gates else ()
        self._controllers = (*_CONTROLLERS, *controllers)
        self.token = secrets.token_hex(16)
        self.url = f"https://127.0.0.1:{free_port()}"
        self.kubeconfig = directory / "kubeconfig"
        self.ca = directory / "certs" / "apiserver.crt"
        self.audit_log = directory / "audit.log"
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self._idle: list[http.client.HTTPSConnection] = []  # a handshake costs more than most requests
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "ControlPlane":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        missing = [name for name in PROGRAMS if not (self.binaries / name).is_file()]
        if missing:
            raise ControlPlaneError(
                f"{', '.join(missing)} not found in {self.binaries}: run `make binaries-apiserver` first"
            )
        self._write_files()
        try:
            self._start_etcd()
            self.start_apiserver(*self.options)
            self._start_controllers()
            self._wait(
                "default ServiceAccount", lambda: self.kubectl("get", "serviceaccount", "default").returncode == 0
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends what was started, last first; safe to call twice."""
        self._hang_up()
        for name in reversed(list(self._processes)):
            self.stop_program(name)

    def start_program(self, name: str, *args: str) -> None:
        """Starts one program of the cache, which ends with this process; its output goes to <name>.log."""
        self._processes[name] = start([self.binaries / name, *args], self.directory / f"{name}.log")

    def stop_program(self, name: str, kill: bool = False) -> None:
        process = self._processes.pop(name)
        if kill:
            process.kill()
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_apiserver(self, *options: str) -> None:
        """Starts the API server and waits until it is ready; also after `stop_program("kube-apiserver")`."""
        port = self.url.rpartition(":")[2]
        key = str(self.directory / "sa.key")
        self.start_program(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.ca.parent}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self.directory / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            *self.gates,
            *options,
        )
        self._wait("kube-apiserver", lambda: self.kubectl("get", "--raw", "/readyz").returncode == 0)

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as cluster admin; never raises for its exit status.

        On a busy machine its ten seconds for a TLS handshake may go by: it has asked for nothing then, and tries again.
        """
        command = [
            str(self.binaries / "kubectl"),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.directory / 'kubectl'}",
        ]
        for _ in range(_HANDSHAKES):
            done = subprocess.run(
                [*command, *args], input=stdin, capture_output=True, text=True, timeout=timeout, check=False
            )
            if "net/http: TLS handshake timeout" not in done.stderr:
                break
        return done

    def apply(self, *objects: dict[str, Any], options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """`kubectl apply` of objects."""
        return self.kubectl("apply", *options, "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get -o json`, which must succeed."""
        done = self.kubectl("get", *args, "-o", "json")
        if done.returncode:
            raise ControlPlaneError(f"kubectl get {' '.join(args)}: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def post(self, path: str, obj: dict[str, Any], validation: str = "Strict") -> tuple[int, str]:
        """What the API server says to a new object, which is not kept: the status code and its message."""
        code, text = self._request("POST", f"{path}?dryRun=All&fieldValidation={validation}", json.dumps(obj))
        return code, text if code < _ERRORS else json.loads(text)["message"]

    def read(self, path: str) -> dict[str, Any]:
        """The object of a path, which must be there: far cheaper than kubectl where a test polls."""
        code, text = self._request("GET", path)
        if code >= _ERRORS:
            raise ControlPlaneError(f"{path}: {text}")
        found: dict[str, Any] = json.loads(text)
        return found

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """Status code and text; asked again when the server has closed the connections that were kept."""
        try:
            return self._ask(method, path, body)
        except (ConnectionError, ssl.SSLEOFError):
            self._hang_up()
            return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: str | None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "User-Agent": "test/1"}
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer.status, text

    def _hang_up(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _connection(self) -> http.client.HTTPSConnection:
        with suppress(IndexError):  # many threads take from it
            return self._idle.pop()
        tls = ssl.create_default_context(cafile=self.ca)
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        return http.client.HTTPSConnection(host, int(port), context=tls, timeout=30)

    def audit(self) -> list[dict[str, Any]]:
        """Every audited request so far; the last line may still be in writing and is then left out."""
        lines = self.audit_log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        self.start_program(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_controllers(self) -> None:
        self.start_program(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(self._controllers)}",
            *self.gates,
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.directory / 'sa.key'}",
        )

    def _write_files(self) -> None:
        self.ca.parent.mkdir(parents=True, exist_ok=True)
        openssl = shutil.which("openssl")
        if openssl is None:
            raise ControlPlaneError("openssl not found on PATH: install it (package openssl)")
        key = str(self.directory / "sa.key")
        subprocess.run([openssl, "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (self.directory / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        (self.directory / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))
        self.kubeconfig.write_text(yaml.safe_dump(self._kubeconfig()))
        self.kubeconfig.chmod(0o600)

    def _kubeconfig(self) -> dict[str, Any]:
        name = "pytorchjob-test"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Polls until ready; names the program that ended meanwhile, with the end of its log."""
        try:
            until(lambda: self._ended() or ready(), _READY_SECONDS, every=0.2)
        except AssertionError:
            raise ControlPlaneError(f"{what}: not ready within {_READY_SECONDS:.0f} s, see {self.directory}") from None
        if ended := self._ended():
            raise ControlPlaneError(f"{ended}, its log ends: {self._log_tail(ended.split()[0])}")

    def _ended(self) -> str:
        gone = ((name, process.poll()) for name, process in self._processes.items())
        return next((f"{name} ended with {code}" for name, code in gone if code is not None), "")

    def _log_tail(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]
