from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.cluster import ControlPlane, ControlPlaneError, eventually

CRD = Path("crds/kubeflow.org_pytorchjobs.yaml")
_ESTABLISHED = "{.status.conditions[?(@.type=='Established')].status}"
CRD_PRESERVING = Path("crds/preserve-unknown/kubeflow.org_pytorchjobs.yaml")


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows nothing of us. Missing programs fail the tests: they are never left out in silence."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
    except ControlPlaneError as error:
        pytest.fail(str(error), pytrace=False)
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def control_plane(bare: ControlPlane) -> ControlPlane:
    """A control plane with the definition installed, as a user installs it."""
    install(bare, CRD)
    return bare


def install(plane: ControlPlane, path: Path) -> None:
    done = plane.kubectl("apply", "-f", str(path))
    assert done.returncode == 0, done.stderr
    # Not `kubectl wait`: it fails on a definition whose conditions are not written yet.
    eventually(lambda: "True" in plane.kubectl("get", "-f", str(path), "-o", f"jsonpath={_ESTABLISHED}").stdout)
    eventually(lambda: plane.kubectl("get", "pytorchjobs", "--all-namespaces").returncode == 0)
