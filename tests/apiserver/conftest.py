import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.client import Client
from tests.apiserver.cluster import ControlPlane, ControlPlaneError
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.apiserver.takeover import Reign
from tests.apiserver.v1_process import V1Process
from tests.waiting import until

CRD = Path("crds/kubeflow.org_pytorchjobs.yaml")
_ESTABLISHED = "{.status.conditions[?(@.type=='Established')].status}"


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


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(config.from_kubeconfig([control_plane.kubeconfig]), "test/1") as one:
        yield one


@pytest.fixture
def make_jobs(control_plane: ControlPlane) -> Iterator[Callable[[], Jobs]]:
    """Namespaces of this test, which are emptied and go after it."""
    made: list[Jobs] = []

    def make() -> Jobs:
        one = Jobs(control_plane, f"test-{secrets.token_hex(4)}")
        one.kubectl("create", "namespace", one.namespace)
        made.append(one)
        return one

    yield make
    for one in made:
        one.kubectl("delete", "ptj", "--all")
        control_plane.kubectl("delete", "namespace", one.namespace, "--wait=false")


@pytest.fixture(scope="module")
def operator(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[OperatorProcess]:
    """The operator of one file, with a Lease of its own, and with the variables that the file calls OPERATOR_ENV."""
    lease = request.module.__name__.rpartition(".")[2].replace("_", "-")
    env = {"PYTORCHJOB_LEASE_NAME": lease} | getattr(request.module, "OPERATOR_ENV", {})
    one = OperatorProcess(control_plane, tmp_path_factory.mktemp("operator"), **env)
    try:
        yield one.wait_ready()
    finally:
        assert one.stop() == 0


@pytest.fixture
def jobs(operator: OperatorProcess, make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace of this test's own, served by the operator of this file."""
    return make_jobs()


@pytest.fixture
async def kubelet(client: Client, jobs: Jobs) -> Kubelet:
    return Kubelet(client, jobs.namespace)


@pytest.fixture
def v1(control_plane: ControlPlane, tmp_path: Path) -> Reign:
    """training-operator v1 serves jobs for as long as this context lasts."""

    @contextmanager
    def runs() -> Iterator[None]:
        one = V1Process(control_plane, tmp_path)
        try:
            one.wait_ready()
            yield
        finally:
            one.stop()

    return runs


@pytest.fixture
def ours(control_plane: ControlPlane, tmp_path: Path) -> Reign:
    """This operator serves jobs for as long as this context lasts; keywords are its environment."""

    @contextmanager
    def runs(**env: str) -> Iterator[None]:
        one = OperatorProcess(control_plane, tmp_path, PYTORCHJOB_LEASE_NAME="takeover", **env)
        try:
            one.wait_ready()
            yield
        finally:
            assert one.stop() == 0

    return runs


def install(plane: ControlPlane, path: Path) -> None:
    done = plane.kubectl("apply", "-f", str(path))
    assert done.returncode == 0, done.stderr
    # Not `kubectl wait`: it fails on a definition whose conditions are not written yet.
    until(lambda: "True" in plane.kubectl("get", "-f", str(path), "-o", f"jsonpath={_ESTABLISHED}").stdout)
    until(lambda: plane.kubectl("get", "pytorchjobs", "--all-namespaces").returncode == 0)
