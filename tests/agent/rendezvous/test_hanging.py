"""How a hang is told: who it is, by the stacks of this agent's workers."""

import pytest

from pytorchjob_agent.contract.collectives import CollectiveFault
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.contract.reasons import CollectiveFaultKind
from pytorchjob_agent.rendezvous import failure_messages
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.stacks.stack_analysis import StackPlace

REDUCE, LOAD = StackPlace("train.py:44 main()", "all_reduce"), StackPlace("train.py:41 load()")


@pytest.mark.parametrize(
    ("suspects", "places", "rank", "waits", "words"),
    [
        pytest.param((0,), {0: LOAD}, 6, False, "it is in train.py:41 load()", id="one worker"),
        pytest.param((0,), {0: REDUCE}, 6, True, "it waits in all_reduce (train.py:44 main())", id="one that waits"),
        pytest.param((0,), {0: None}, 6, False, "it gives no stack", id="one that is frozen"),
        pytest.param(
            (0, 1),
            {0: REDUCE, 1: LOAD},
            7,
            False,
            "rank 7 is in train.py:41 load(); rank 6 waits in all_reduce (train.py:44 main())",
            id="of two the one that does not wait",
        ),
        pytest.param((0, 1), {0: REDUCE, 1: REDUCE}, 6, True, "ranks 6, 7 wait in all_reduce", id="both wait"),
        pytest.param((), {0: REDUCE, 1: None}, 7, False, "rank 7 gives no stack", id="by a log rule: the frozen one"),
    ],
)
def test_the_one_at_fault_is_named(
    suspects: tuple[int, ...], places: dict[int, StackPlace | None], rank: int, waits: bool, words: str
) -> None:
    told, echo = failure_messages.hang(HangVerdict("no step for 11 s", suspects), places, first_rank=6)
    assert (told.rank, echo) == (rank, waits)
    assert told.message.startswith("no step for 11 s; ")
    assert words in told.message


def test_where_all_ranks_are_begins_with_the_one_at_fault() -> None:
    at = failure_messages.ranks_at({0: REDUCE, 1: None, 2: LOAD}, 6)
    assigned = Assigned(RoundId(1, 1), 1, 2, 6, 9, "127.0.0.1", 1, 0)
    told, _ = failure_messages.hang(HangVerdict("no step", (2,)), {0: REDUCE, 1: None, 2: LOAD}, 6)
    assert [*failure_messages.message(assigned, told, places=at).places.items()] == [
        ("8", "train.py:41 load()"),
        ("6", "train.py:44 main()"),
        ("7", None),
    ]


def test_what_the_collectives_tell_counts_more_than_the_stacks() -> None:
    fault = CollectiveFault(CollectiveFaultKind.NOT_BEGUN, (7,), "0", 5, "barrier")
    told, echo = failure_messages.hang(HangVerdict("no step", (0, 1)), {0: LOAD, 1: REDUCE}, 6, fault)
    assert (told.rank, told.local_rank, echo) == (7, 1, False)
