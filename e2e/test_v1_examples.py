"""The shapes of training-operator v1's examples, with plain python and torchrun: each one reaches Succeeded."""

from collections.abc import Iterator

import pytest
import yaml

from e2e.conftest import ROOT, fresh_namespace
from e2e.kubectl import JOB_LABEL, Kubectl, until

ETCD = ["echo-etcd", "echo-etcd-v2"]
KEEP_THEIR_OWN = ("echo-static", "standalone")
"""Jobs that name another rendezvous."""
OTHERS = ["simple", "cpu-demo", "send-recv", "mnist-gloo", "echo-c10d", "echo-static", "standalone"]


@pytest.fixture(scope="module")
def submitted(operator: Kubectl) -> Iterator[Kubectl]:
    """All jobs at once but those that meet by etcd."""
    with fresh_namespace(operator) as kubectl:
        _apply(kubectl, OTHERS)
        yield kubectl


@pytest.fixture(scope="module")
def with_agents(operator: Kubectl) -> Iterator[Kubectl]:
    """The same jobs with the agent, and not another changed line."""
    with fresh_namespace(operator) as kubectl:
        for name in OTHERS:
            documents = [*yaml.safe_load_all((ROOT / "e2e" / "v1" / f"{name}.yaml").read_text())]
            for document in documents:
                if document["kind"] == "PyTorchJob" and name not in KEEP_THEIR_OWN:
                    document["spec"]["agent"] = {"inject": True}
            kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
        yield kubectl


@pytest.fixture(scope="module")
def by_etcd(operator: Kubectl) -> Iterator[Kubectl]:
    """The jobs that meet by etcd, without any others.

    An etcd that is short of CPU loses requests, and torch closes the rendezvous for ever when one of its agents ends.
    """
    with fresh_namespace(operator) as kubectl:
        _apply(kubectl, ["etcd"])
        kubectl("wait", "--for=condition=Available", "--timeout=120s", "deployment/etcd")
        _apply(kubectl, ETCD)
        yield kubectl


def _apply(kubectl: Kubectl, names: list[str]) -> None:
    kubectl("apply", *(f"--filename={ROOT / 'e2e' / 'v1' / name}.yaml" for name in names))


SIMPLE = pytest.param("simple", "world_size=2 accuracy=", id="simple: python, 1 master and 1 worker")
CPU_DEMO = pytest.param("cpu-demo", "world_size=4 sum=6", id="cpu-demo: torchrun with two processes in each pod")
SEND_RECV = pytest.param("send-recv", "non-blocking: rank 3 answered 9", id="send and receive: 1 master and 3 workers")
MNIST = pytest.param("mnist-gloo", "world_size=2 accuracy=0.9", id="mnist: training with gloo, without any agent")
C10D = pytest.param("echo-c10d", "GROUP_RANK=1", id="elastic echo: two workers meet by c10d")
STATIC = pytest.param("echo-static", "GROUP_RANK=1", id="elastic echo: two workers by the ranks that they were given")
STANDALONE = pytest.param("standalone", "met everybody", id="standalone: one worker has no peers")


@pytest.mark.parametrize(("job", "said"), [SIMPLE, CPU_DEMO, SEND_RECV, MNIST, C10D, STATIC, STANDALONE])
def test_an_example_of_v1_succeeds(submitted: Kubectl, job: str, said: str) -> None:
    _succeeds(submitted, job, said)


@pytest.mark.long
@pytest.mark.parametrize(("job", "said"), [SIMPLE, CPU_DEMO, SEND_RECV, MNIST, C10D])
def test_an_example_of_v1_succeeds_with_the_agent(with_agents: Kubectl, job: str, said: str) -> None:
    _succeeds(with_agents, job, said)
    assert with_agents.job(job)["status"]["elastic"]["round"], with_agents.story(job)


def _succeeds(submitted: Kubectl, job: str, said: str) -> None:
    assert "Succeeded" in submitted.finish(job), submitted.story(job)
    until(
        lambda: said in submitted("logs", f"--selector={JOB_LABEL}={job}", "--tail=-1"),
        60,
        lambda: submitted.story(job),
    )


@pytest.mark.alone
@pytest.mark.parametrize(
    ("job", "said"),
    [
        pytest.param("echo-etcd", "GROUP_RANK=1", id="elastic echo: two workers meet by etcd"),
        pytest.param("echo-etcd-v2", "GROUP_RANK=1", id="elastic echo: two workers meet by etcd-v2"),
    ],
)
def test_an_example_that_meets_by_etcd_succeeds(by_etcd: Kubectl, job: str, said: str) -> None:
    _succeeds(by_etcd, job, said)
