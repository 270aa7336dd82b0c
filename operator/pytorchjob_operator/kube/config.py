"""Which API server to use and with which identity: the pod's service account, or a kubeconfig's current context.

Files are read once, at start; only a token source reads its file again. No connection is opened here.
"""

import base64
import binascii
import json
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.bearer import CommandToken, FileToken, FixedToken, TokenSource

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_FILE = 4 * 1024 * 1024
_NOT_SUPPORTED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("auth-provider", "username", "as", "as-uid", "as-groups"),
}


@dataclass(frozen=True, slots=True)
class Connection:
    """An API server: its address, its CA, and the client's credentials; PEM data as bytes, never paths."""

    server: str
    namespace: str = "default"
    token: TokenSource = field(default_factory=FixedToken)
    ca: bytes | None = None
    insecure: bool = False
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context for this connection; raises OperatorError if the CA or client certificate is unusable."""
        try:
            return self._ssl_context()
        except (ssl.SSLError, ValueError) as error:
            raise OperatorError(f"{self.server}: the CA or the client certificate is unusable: {error}") from error

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca.decode("ascii") if self.ca else None)
        # Python 3.13 requires CA extensions that the CAs of many clusters lack; all other clients accept those CAs.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.key:
            with private_file(self.certificate) as certificate, private_file(self.key) as key:
                context.load_cert_chain(certificate, key)
        return context


def load(environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT) -> Connection:
    """Use KUBECONFIG if it is set, otherwise the pod's service account, otherwise ~/.kube/config."""
    if environ.get("KUBECONFIG"):
        return from_kubeconfig([Path(path) for path in environ["KUBECONFIG"].split(os.pathsep) if path])
    if environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return from_service_account(environ, service_account)
    default = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if default.exists():
        return from_kubeconfig([default])
    raise OperatorError(
        f"no cluster is configured: this is not a pod, KUBECONFIG is not set and {default} does not exist;"
        " set KUBECONFIG to a kubeconfig file"
    )


def from_service_account(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """Use the service account that the kubelet mounts into every pod; the token file is read again as it rotates."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_read(folder / "namespace").decode().strip() or "default",
        token=FileToken(folder / "token"),
        ca=_read(folder / "ca.crt"),
    )


def from_kubeconfig(paths: list[Path]) -> Connection:
    """Use the current context of one or several kubeconfig files; the first file wins, as with kubectl."""
    files = [_Kubeconfig.read(path) for path in paths if path.exists()]
    if not files:
        raise OperatorError(f"KUBECONFIG: the file {', '.join(map(str, paths))} does not exist; correct the variable")
    current = next((str(file.body["current-context"]) for file in files if file.body.get("current-context")), "")
    if not current:
        raise OperatorError(f"{files[0].path}: current-context is not set; run `kubectl config use-context NAME`")
    context = _find(files, "context", current)
    cluster = _find(files, "cluster", str(context.get("cluster")))
    user = _find(files, "user", str(context.get("user"))) if context.get("user") else _Entry("user", Path(), {})
    return Connection(
        server=cluster.require("server").rstrip("/"),
        namespace=str(context.get("namespace") or "default"),
        token=_token(user),
        ca=cluster.data("certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        certificate=user.data("client-certificate"),
        key=user.data("client-key"),
    )


@dataclass(frozen=True, slots=True)
class _Kubeconfig:
    """The content of one kubeconfig file."""

    path: Path
    body: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_Kubeconfig":
        try:
            body = yaml.safe_load(_read(path))
        except yaml.YAMLError as error:
            raise OperatorError(f"{path}: is not YAML: {error}") from error
        if not isinstance(body, dict):
            raise OperatorError(f"{path}: is not a kubeconfig: expected a mapping, found {type(body).__name__}")
        return cls(path, body)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context, with the file that its relative paths refer to."""

    kind: str
    path: Path
    body: dict[str, Any]

    def get(self, key: str) -> Any:
        return self.body.get(key)

    def require(self, key: str) -> str:
        if not self.body.get(key):
            raise OperatorError(f"{self.path}: {self.kind}.{key} is missing")
        return str(self.body[key])

    def file(self, key: str) -> Path:
        return self.path.parent / str(self.body[key])

    def data(self, key: str) -> bytes | None:
        """PEM data: inline (`<key>-data`) takes precedence over the file."""
        if inline := self.body.get(f"{key}-data"):
            try:
                return base64.b64decode(str(inline), validate=True)
            except (binascii.Error, ValueError) as error:
                raise OperatorError(f"{self.path}: {self.kind}.{key}-data is not base64: {error}") from error
        return _read(self.file(key)) if self.body.get(key) else None


def _find(files: list[_Kubeconfig], kind: str, name: str) -> _Entry:
    for file in files:
        for entry in file.body.get(f"{kind}s") or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return _checked(_Entry(kind, file.path, entry.get(kind) or {}))
    raise OperatorError(f"{files[0].path}: {kind}s has no entry named {name!r}")


def _checked(entry: _Entry) -> _Entry:
    for key in _NOT_SUPPORTED.get(entry.kind, ()):
        if entry.get(key):
            raise OperatorError(f"{entry.path}: {entry.kind}.{key} is not supported; use a context without it")
    return entry


def _token(user: _Entry) -> TokenSource:
    if user.get("token"):
        return FixedToken(str(user.get("token")))
    if user.get("tokenFile"):
        return FileToken(user.file("tokenFile"))
    if plugin := user.get("exec"):
        command = (str(plugin.get("command")), *map(str, plugin.get("args") or ()))
        env = {str(variable["name"]): str(variable["value"]) for variable in plugin.get("env") or ()}
        info = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
        return CommandToken(command, {**env, "KUBERNETES_EXEC_INFO": json.dumps(info)})
    return FixedToken(None)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE)
    except OSError as error:
        raise OperatorError(f"{path}: cannot be read: {error}") from error


@contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Write `data` to a file that only this user can read, and remove it on exit: ssl loads keys from files only."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.name
