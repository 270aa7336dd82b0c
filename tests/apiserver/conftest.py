from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.cluster import ControlPlane, ControlPlaneError

CRD = Path("crds/kubeflow.org_pytorchjobs.yaml")
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
    waited = plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(path))
    assert waited.returncode == 0, waited.stderr
    discovered = plane.kubectl("get", "pytorchjobs", "--all-namespaces")
    assert discovered.returncode == 0, discovered.stderr
