"""Which API server to use and with which identity: the pod's service account, or a kubeconfig's current context.

Files are read once, at start; only a token source reads its file again. No connection is opened here. The pod's way
needs no library.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.bearer import FileToken, FixedToken, TokenSource

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_FILE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
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


def load(environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """Use KUBECONFIG if it is set, otherwise the pod's service account, otherwise ~/.kube/config."""
    if environ.get("KUBECONFIG"):
        return _from_kubeconfig([Path(path) for path in environ["KUBECONFIG"].split(os.pathsep) if path])
    if environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return from_service_account(environ, service_account)
    default = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if default.exists():
        return _from_kubeconfig([default])
    raise OperatorError(
        f"no cluster is configured: this is not a pod, KUBECONFIG is not set and {default} does not exist;"
        " set KUBECONFIG to a kubeconfig file"
    )


def _from_kubeconfig(paths: list[Path]) -> ApiEndpoint:
    from pytorchjob_operator.kube.kubeconfig import from_kubeconfig  # what it needs is large, and no pod needs it

    return from_kubeconfig(paths)


def from_service_account(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """Use the service account that the kubelet mounts into every pod; the token file is read again as it rotates."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ApiEndpoint(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_read(folder / "namespace").decode().strip() or "default",
        token=FileToken(folder / "token"),
        ca=_read(folder / "ca.crt"),
    )


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
