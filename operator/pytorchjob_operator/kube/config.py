"""Which API server to use and with which identity: the pod's service account, or a kubeconfig's current context.

Files are read once, at start; only a token source reads its file again. The pod's way needs no library.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.endpoint import ApiEndpoint, FileToken

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_FILE = 4 * 1024 * 1024


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
