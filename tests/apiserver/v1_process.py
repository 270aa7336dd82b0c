"""The real training-operator v1 as a process, for tests that hand jobs over between the two operators.

The path of its certificates' folder is fixed in its code. The webhook itself is not registered: v1's validation is not
what these tests are about.
"""

import contextlib
import fcntl
import functools
import json
import os
import subprocess
from pathlib import Path

from tests.apiserver.cluster import ControlPlane, ControlPlaneError
from tests.apiserver.operator_process import ROOT
from tests.apiserver.webhook_process import Certificate, WebhookProcess
from tests.ports import free_port

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


class V1Process(WebhookProcess):
    """`training-operator --enable-scheme=pytorchjob` against a control plane."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        if not (plane.binaries / PROGRAM).is_file():
            raise ControlPlaneError(f"{PROGRAM} not found in {plane.binaries}: run `make binaries-apiserver` first")
        super().__init__(plane, directory / f"{PROGRAM}.log", Certificate(_NAMESPACE, _SECRET, _CERTIFICATES))
        made = plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": _NAMESPACE}},
        )
        assert made.returncode == 0, made.stderr
        self._locked = _lock()
        self.start(
            plane.binaries / PROGRAM,
            "--enable-scheme=pytorchjob",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={self.health}",
            f"--webhook-server-port={free_port()}",
            # Half of v1 takes the fixed path of the certificates, half asks for the folder of temporary files.
            TMPDIR=str(_CERTIFICATES.parents[1]),
        )

    def stop(self) -> None:
        """End it; no job may have brought it down before. (At its end it always panics.)"""
        log = self.log
        try:
            super().stop()
        finally:
            os.close(self._locked)
        assert "panic" not in log, log
