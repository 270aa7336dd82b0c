"""What a machine lacks, why, and what helps."""

import os

import pytest

from tests.lanes.machine import Machine, detect, lacks

HAS_ALL = Machine()


@pytest.mark.parametrize(
    ("machine", "missing"),
    [
        pytest.param(HAS_ALL, {}, id="nothing is missing"),
        pytest.param(Machine(docker=False), {}, id="root starts a Docker daemon, and installs it where it has to"),
        pytest.param(Machine(root=False), {}, id="a user whose Docker daemon answers"),
        pytest.param(
            Machine(root=False, docker=False),
            {"cluster": "no Docker daemon answers, and only root can start one"},
            id="neither root nor Docker",
        ),
        pytest.param(
            Machine(docker=False, docker_installable=False),
            {"cluster": "Docker is missing, and there is no apt-get to install it"},
            id="no Docker and none to be had",
        ),
        pytest.param(
            Machine(go=False, helm=True),
            {"cluster": "Go is missing: kind, kubectl and helm are built with it", "apiserver": "Go is missing"},
            id="no Go, but helm and kubectl",
        ),
        pytest.param(
            Machine(go=False, helm=False),
            {
                "cluster": "Go is missing: kind, kubectl and helm are built with it",
                "apiserver": "Go is missing",
                "helm": "helm or kubectl is missing, and Go to build them",
            },
            id="no Go, no helm",
        ),
        pytest.param(
            Machine(root=False, docker=False, existing_cluster=True, kubeconfig=True), {}, id="a cluster of one's own"
        ),
        pytest.param(
            Machine(existing_cluster=True),
            {"cluster": "PROVIDER=existing, but KUBECONFIG is not set"},
            id="a cluster of one's own that is not named",
        ),
        pytest.param(
            Machine(go=False, helm=False, existing_cluster=True, kubeconfig=True),
            {
                "cluster": "helm or kubectl is missing",
                "apiserver": "Go is missing",
                "helm": "helm or kubectl is missing, and Go to build them",
            },
            id="a cluster of one's own, without its clients",
        ),
        pytest.param(
            Machine(old_python=False),
            {"torch_oldest": "Python 3.11 or 3.12 is missing"},
            id="no Python that the oldest torch knows",
        ),
    ],
)
def test_what_is_missing_is_said_by_the_kind_of_tests(machine: Machine, missing: dict[str, str]) -> None:
    found = lacks(machine)
    assert {kind: lack.why for kind, lack in found.items()} == missing
    assert all(lack.remedy for lack in found.values())


def test_a_machine_without_any_program_is_looked_at() -> None:
    found = detect({"PATH": "/nowhere", "HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere", "PROVIDER": "existing"})
    assert (found.root, found.helm, found.existing_cluster, found.kubeconfig) == (os.geteuid() == 0, False, True, False)
