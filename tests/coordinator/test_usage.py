"""What a job and a namespace may use of the coordinator."""

import pytest

from pytorchjob_agent.contract.unauthenticated import EntryStage
from pytorchjob_operator.coordinator.limits import MIB, Limits
from pytorchjob_operator.coordinator.usage import ConnectionUsage, Title

FIRST, SECOND, OTHER = Title("first", "team"), Title("second", "team"), Title("third", "others")
LIMITS = Limits(connections=8, held=1000)


def test_connections_are_counted_by_namespace() -> None:
    usage = ConnectionUsage(LIMITS)
    for title in (FIRST, FIRST, SECOND, OTHER):
        usage.enter(title)
    usage.leave(FIRST)
    job, every, namespace = usage.shares(FIRST, links=1, pods=3)
    assert (job.owner, job.used, job.most) == ("job team/first", 1, 22)
    assert (namespace.owner, namespace.used, namespace.most) == ("namespace team", 2, 6)
    assert (every.owner, every.used, every.most) == ("the coordinator", 3, 8)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        pytest.param([(FIRST, 500)], None, id="within its limit"),
        pytest.param([(FIRST, 501)], "job team/first has 501 bytes", id="a job"),
        pytest.param([(FIRST, 400), (SECOND, 400)], "namespace team has 800 bytes", id="jobs of a namespace"),
        pytest.param([(FIRST, 500), (SECOND, 250), (OTHER, 251)], "the coordinator has 1001 bytes", id="all jobs"),
        pytest.param([(FIRST, 501), (FIRST, -300), (FIRST, 100)], None, id="bytes that are handled do not count"),
    ],
)
def test_a_connection_must_go_if_too_much_waits(held: list[tuple[Title, int]], words: str | None) -> None:
    usage = ConnectionUsage(LIMITS)
    answers = [usage.hold(title, more) for title, more in held]
    if words is None:
        assert answers[-1] is None
    else:
        assert words in str(answers[-1])
        assert str(held[-1][0]) in str(answers[-1]), "the job is named"


@pytest.mark.parametrize(
    ("memory", "files", "connections", "held"),
    [
        pytest.param(None, 2**20, 20_000, 64 * MIB, id="no limit of memory"),
        pytest.param(512 * MIB, 2**20, 5242, 53_687_091, id="the chart's limit"),
        pytest.param(128 * MIB, 2**20, 1310, 13_421_772, id="a small pod"),
        pytest.param(None, 1024, 432, 64 * MIB, id="few open files"),
        pytest.param(MIB, 1, 36, MIB, id="hardly anything"),
    ],
)
def test_the_limits_fit_the_pod(memory: int | None, files: int, connections: int, held: int) -> None:
    limits = Limits.within(memory, files)
    assert (limits.connections, limits.held) == (connections, held)
    assert sum(limits.unauthenticated.values()) + limits.connections <= max(files, 64)


@pytest.mark.parametrize(
    ("memory", "stages"),
    [
        pytest.param(None, (8192, 4096, 1024), id="no limit of memory"),
        pytest.param(512 * MIB, (8192, 4096, 655), id="the chart's limit"),
        pytest.param(128 * MIB, (3276, 1092, 163), id="a small pod"),
        pytest.param(MIB, (25, 16, 16), id="hardly anything"),
    ],
)
def test_unauthenticated_connections_fit_the_pod(memory: int | None, stages: tuple[int, int, int]) -> None:
    limits = Limits.within(memory, 2**20)
    assert tuple(limits.unauthenticated[stage] for stage in EntryStage) == stages
