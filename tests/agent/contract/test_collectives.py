"""Which rank keeps the others waiting, by what each has begun in each process group."""

import pytest

from pytorchjob_agent.contract.collectives import CollectiveFault, GroupPosition, find_fault
from pytorchjob_agent.contract.reasons import CollectiveFaultKind

NOT_BEGUN, DIFFERS, OTHER_ORDER = CollectiveFaultKind


def ranks(*histories: str, first: int = 0, age: int = 60_000) -> list[GroupPosition]:
    """The positions of ranks from what each has begun, like `a1 b1 a2`: in group a, then in b."""
    found = []
    for rank, history in enumerate(histories, first):
        calls = history.split()
        for group in dict.fromkeys(call[0] for call in calls):
            own = tuple(call[1:] for call in calls if call[0] == group)
            found.append(GroupPosition(rank, group, len(own), calls[-1][0] == group, age, own))
    return found


def no_calls(positions: list[GroupPosition]) -> list[GroupPosition]:
    return [GroupPosition(each.rank, each.group, each.begun, each.latest, each.age) for each in positions]


@pytest.mark.parametrize(
    ("positions", "fault"),
    [
        pytest.param([], None, id="nothing is known"),
        pytest.param(ranks("ax ay", "ax ay"), None, id="all have begun the same"),
        pytest.param(ranks("ax ay", "ax"), CollectiveFault(NOT_BEGUN, (1,), "a", 2, "y"), id="one is late"),
        pytest.param(ranks("ax", "ax ay", "ax ay"), CollectiveFault(NOT_BEGUN, (0,), "a", 2, "y"), id="rank 0 is late"),
        pytest.param(
            ranks("ax ay az", "ax ay az", "ax ay", "ax"),
            CollectiveFault(NOT_BEGUN, (3,), "a", 2, "y"),
            id="a late rank that waits for a later one is not the cause",
        ),
        pytest.param(
            ranks("ax ay", "ax ay", "ax", "ax"), CollectiveFault(NOT_BEGUN, (2, 3), "a", 2, "y"), id="two are late"
        ),
        pytest.param(
            no_calls(ranks("ax ay", "ax")), CollectiveFault(NOT_BEGUN, (1,), "a", 2), id="the call is not known"
        ),
        pytest.param(ranks("ax ay", "ax", age=10), None, id="nobody has waited yet"),
        pytest.param(
            ranks("ax ay", "ax ay", "ax ab"),
            CollectiveFault(DIFFERS, (2,), "a", 2, "y", "b"),
            id="one has begun another collective",
        ),
        pytest.param(
            ranks("ax ab", "ax ay", "ax ay"),
            CollectiveFault(DIFFERS, (0,), "a", 2, "y", "b"),
            id="rank 0 has begun another collective",
        ),
        pytest.param(
            ranks("ax ay", "ax ab"),
            CollectiveFault(DIFFERS, (1,), "a", 2, "y", "b"),
            id="of two, rank 0 counts as right",
        ),
        pytest.param(
            ranks("ax ay az aw", "ax ab"),
            CollectiveFault(DIFFERS, (1,), "a", 2, "y", "b"),
            id="another collective comes before a late rank",
        ),
        pytest.param(
            ranks("ax ay az", "ax ab ab"),
            CollectiveFault(DIFFERS, (1,), "a", 2, "y", "b"),
            id="of several that differ, the first",
        ),
        pytest.param(
            ranks("ax", "ax", "by"),
            None,
            id="groups of other ranks",
        ),
        pytest.param(
            ranks("aw bw ax", "aw bw ax", "aw bw by"),
            CollectiveFault(OTHER_ORDER, (2,), "a", 2, "x", "y"),
            id="one waits in another group",
        ),
        pytest.param(
            ranks("aw bw ax", "aw bw by"),
            CollectiveFault(OTHER_ORDER, (1,), "a", 2, "x", "y"),
            id="two wait for each other in two groups",
        ),
        pytest.param(
            [*ranks("aw cx", "aw cx"), *ranks("aw bw bx", "bw", first=2)],
            CollectiveFault(NOT_BEGUN, (3,), "b", 2, "x"),
            id="a chain over two groups",
        ),
        pytest.param(
            ranks("tw dx", "tw ex", "uw dx uz", "uw ex")[:-1] + ranks("uw", first=3),
            CollectiveFault(NOT_BEGUN, (3,), "u", 2, "z"),
            id="tensor and data parallel: all wait in the end for one",
        ),
        pytest.param(
            ranks("ax ay", "ax cz"),
            None,
            id="a late rank may itself wait for a rank of which nothing is known",
        ),
    ],
)
def test_the_rank_that_keeps_the_others_waiting(positions: list[GroupPosition], fault: CollectiveFault | None) -> None:
    assert find_fault(positions, 5) == fault
    assert find_fault(positions[::-1], 5) == fault


@pytest.mark.parametrize(
    ("positions", "place"),
    [
        pytest.param(ranks("ax ay", "ax ay", "ax"), "t.py:0", id="of the ranks that wait, the lowest"),
        pytest.param(ranks("ax", "ax ay", "ax ay"), "t.py:1", id="rank 0 is late"),
        pytest.param(ranks("ax ay az", "ax ab", "ax ay"), "t.py:2", id="one that has begun more is elsewhere"),
        pytest.param(ranks("ax ay bx", "ax", "ax bx"), "", id="none is in it any more"),
        pytest.param(ranks("ax ay", "ax", first=3), "", id="it gives no stack"),
        pytest.param(ranks("ax ay", "ax", first=5), "", id="nothing is known of where ranks are"),
    ],
)
def test_where_the_others_wait(positions: list[GroupPosition], place: str) -> None:
    at: dict[str, str | None] = {str(rank): f"t.py:{rank}" for rank in range(3)} | {"3": None}
    found = find_fault(positions, 5, at)
    assert found is not None
    assert found.place == place
