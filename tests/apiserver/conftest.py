import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.client import ApiClient
from tests.apiserver.cluster import ControlPlane, ControlPlaneError
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.apiserver.takeover import Reign
from tests.apiserver.v1_process import V1Process
from tests.waiting import connections_close, until

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
async def client(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    async with ApiClient(config.load({"KUBECONFIG": str(control_plane.kubeconfig)}), "test/1") as opened:
        yield opened
    await connections_close()


@pytest.fixture
def make_jobs(control_plane: ControlPlane) -> Iterator[Callable[[], Jobs]]:
    """Namespaces of this test, which are emptied and go after it."""
    made: list[Jobs] = []

    def make() -> Jobs:
        jobs = Jobs(control_plane, f"test-{secrets.token_hex(4)}")
        jobs.kubectl("create", "namespace", jobs.namespace)
        made.append(jobs)
        return jobs

    yield make
    for jobs in made:
        jobs.kubectl("delete", "ptj", "--all")
        control_plane.kubectl("delete", "namespace", jobs.namespace, "--wait=false")


class Served:
    """The one operator that serves all jobs; files that ask for the same settings share it."""

    def __init__(self) -> None:
        self._process: OperatorProcess | None = None
        self._env: dict[str, str] = {}

    def by(self, plane: ControlPlane, directory: Path, env: dict[str, str]) -> OperatorProcess:
        """Return the operator with these variables; it is started if it does not run."""
        if self._process is None or self._env != env:
            self.stop()
            self._process = OperatorProcess(plane, directory, PYTORCHJOB_LEASE_NAME="shared", **env)
            self._env = env
        return self._process.wait_ready()

    def stop(self) -> None:
        """End the operator, if one runs; it must end well."""
        process, self._process = self._process, None
        assert process is None or process.stop() == 0


_SERVED = Served()


@pytest.fixture(scope="session")
def served(control_plane: ControlPlane) -> Iterator[Served]:
    """Whoever serves the jobs of all files that ask for it; ended before the control plane."""
    yield _SERVED
    _SERVED.stop()


@pytest.fixture(scope="module")
def operator(
    control_plane: ControlPlane,
    served: Served,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> OperatorProcess:
    """The operator, with the variables that the file calls OPERATOR_ENV."""
    env = getattr(request.module, "OPERATOR_ENV", {})
    return served.by(control_plane, tmp_path_factory.mktemp("operator"), env)


@pytest.fixture(scope="module", autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> None:
    """Nobody serves the jobs of a file that does not ask for it: it starts operators of its own, or wants none."""
    items = [item for item in request.session.items if item.path == request.path]
    if not any("served" in getattr(item, "fixturenames", ()) for item in items):
        _SERVED.stop()


@pytest.fixture
def jobs(operator: OperatorProcess, make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace of this test's own, served by the operator of this file."""
    return make_jobs()


@pytest.fixture
async def kubelet(client: ApiClient, jobs: Jobs) -> Kubelet:
    return Kubelet(client, jobs.namespace)


@pytest.fixture
def v1(control_plane: ControlPlane, tmp_path: Path) -> Reign:
    """training-operator v1 serves jobs for as long as this context lasts."""

    @contextmanager
    def runs() -> Iterator[None]:
        process = V1Process(control_plane, tmp_path)
        try:
            process.wait_ready()
            yield
        finally:
            process.stop()

    return runs


@pytest.fixture
def ours(control_plane: ControlPlane, tmp_path: Path) -> Reign:
    """This operator serves jobs for as long as this context lasts; keywords are its environment."""

    @contextmanager
    def runs(**env: str) -> Iterator[None]:
        process = OperatorProcess(control_plane, tmp_path, PYTORCHJOB_LEASE_NAME="takeover", **env)
        try:
            process.wait_ready()
            yield
        finally:
            assert process.stop() == 0

    return runs


def install(plane: ControlPlane, path: Path) -> None:
    done = plane.kubectl("apply", "-f", str(path))
    assert done.returncode == 0, done.stderr
    # Not `kubectl wait`: it fails on a definition whose conditions are not written yet.
    until(lambda: "True" in plane.kubectl("get", "-f", str(path), "-o", f"jsonpath={_ESTABLISHED}").stdout)
    until(lambda: plane.kubectl("get", "pytorchjobs", "--all-namespaces").returncode == 0)
