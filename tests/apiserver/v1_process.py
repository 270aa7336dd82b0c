"""The real training-operator v1 as a process, for tests that hand jobs over between the two operators.

It runs as released, with one thing made up for: in a cluster the kubelet mounts the Secret of its webhook's certificate
into a folder whose path is fixed in its code. The webhook itself is not registered: v1's validation is not what these
tests are about.
"""

import base64
import contextlib
import fcntl
import functools
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.apiserver.cluster import ControlPlane, ControlPlaneError
from tests.apiserver.operator_process import ROOT
from tests.ports import free_port
from tests.waiting import until

PROGRAM = "training-operator"
MODULE = "github.com/kubeflow/training-operator"
USER_AGENT = f"{PROGRAM}/"
_TOOL = ROOT / "e2e" / "cluster" / "tools" / PROGRAM
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
_NAMESPACE = "kubeflow"
_SECRET = f"{PROGRAM}-webhook-cert"


def _lock() -> int:
    """Lock the folder of the certificates: tests in another process, of any user, wait until this v1 has ended."""
    _CERTIFICATES.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # it belongs to the user who was here first
        _CERTIFICATES.chmod(0o777)
    folder = os.open(_CERTIFICATES, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    return folder


@functools.cache
def crd() -> Path:
    """v1's own definition of a PyTorchJob, from the module that the program is built from."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", MODULE], cwd=_TOOL, capture_output=True, text=True, check=True, timeout=100
    )
    return Path(json.loads(done.stdout)["Dir"]) / "manifests" / "base" / "crds" / "kubeflow.org_pytorchjobs.yaml"


class V1Process:
    """`training-operator --enable-scheme=pytorchjob` against a control plane; it ends with this process."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        if not (plane.binaries / PROGRAM).is_file():
            raise ControlPlaneError(f"{PROGRAM} not found in {plane.binaries}: run `make binaries-apiserver` first")
        self._plane = plane
        self._health = f"127.0.0.1:{free_port()}"
        self.log_file = directory / "training-operator.log"
        made = plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": _NAMESPACE}},
        )
        assert made.returncode == 0, made.stderr
        self._mounted = _lock()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            *("setpriv", "--pdeathsig", "KILL", str(self._plane.binaries / PROGRAM)),
            "--enable-scheme=pytorchjob",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={self._health}",
            f"--webhook-server-port={free_port()}",
        ]
        # Half of v1 takes the fixed path of the certificates, the other half asks for the folder of temporary files.
        env = {**os.environ, "KUBECONFIG": str(self._plane.kubeconfig), "TMPDIR": str(_CERTIFICATES.parents[1])}
        with self.log_file.open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_ready(self) -> "V1Process":
        until(self._secret, story=lambda: self.log[-3000:])
        self._mount()
        until(self._ready, story=lambda: self.log[-3000:])
        return self

    def _secret(self) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.get("-n", _NAMESPACE, "secret", _SECRET).get("data", {})
        return found

    def _mount(self) -> None:
        """What the kubelet would do. The files stay: another test run on this machine may be about to read them."""
        for name, content in self._secret().items():
            new = _CERTIFICATES / f"{name}.{os.getpid()}"
            new.write_bytes(base64.b64decode(content))
            new.replace(_CERTIFICATES / name)  # also of another user

    def _ready(self) -> bool:
        assert self._process.poll() is None, f"v1 ended with {self._process.returncode}: {self.log[-3000:]}"
        try:
            with urllib.request.urlopen(f"http://{self._health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.HTTPError, OSError):
            return False

    def stop(self) -> None:
        """End it as the kubelet does; no job may have brought it down before. (At its end it always panics.)"""
        log, ended = self.log, self._process.poll()
        self._process.terminate()
        self._process.wait(30)
        os.close(self._mounted)
        assert ended is None, f"v1 ended with {ended}: {log[-3000:]}"
        assert "panic" not in log, log
