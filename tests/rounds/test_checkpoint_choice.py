"""Which checkpoint a round starts with, from what its members hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_agent.contract.held_saves import Choice, DurableParts, HeldSave, SaveId
from pytorchjob_agent.contract.messages import Heartbeat, Join, RoundId
from pytorchjob_operator.rounds.checkpoint_choice import choose
from pytorchjob_operator.rounds.values import Member
from tests.rounds.story import Job, expected, running

ONE, TWO = RoundId(1, 1), RoundId(1, 2)


def save(round_: RoundId, owner: int, number: int, writers: int = 1, label: str = "") -> HeldSave:
    return HeldSave(SaveId(round_, owner, number), 5, "digest", writers, label)


def part(owner: int, number: int, label: str, round_: RoundId = ONE) -> HeldSave:
    return save(round_, owner, number, 2, label)


def member(index: int, *held: HeldSave) -> Member:
    return Member(index, f"pod-{index}", "", "x", 1, "10.0.0.1", 1, 0.0, held=held)


@pytest.mark.parametrize(
    ("held", "chosen"),
    [
        pytest.param([[], []], "", id="nothing"),
        pytest.param([[save(ONE, 0, 1)], []], "1.1/0/1", id="what a single member holds"),
        pytest.param([[save(ONE, 0, 1)], [save(ONE, 0, 2)]], "1.1/0/2", id="the newer of two"),
        pytest.param([[save(ONE, 0, 9)], [save(TWO, 0, 2)]], "1.2/0/2", id="a later round before a greater number"),
        pytest.param([[save(ONE, 0, 1)], [save(ONE, 1, 7)]], "1.1/0/1", id="rank 0 before others of the round"),
        pytest.param([[save(ONE, 0, 1)], [save(TWO, 1, 1)]], "1.2/1/1", id="another rank of a later round"),
        pytest.param([[part(0, 1, "step-5")], [part(1, 4, "step-5")]], "1.1/0/1/2/step-5", id="all parts"),
        pytest.param([[part(0, 1, "step-5")], []], "", id="a part is missing"),
        pytest.param([[part(0, 1, "step-5")], [part(1, 1, "step-6")]], "", id="parts of different saves"),
        pytest.param([[part(0, 1, "step-5")], [part(1, 1, "step-5", TWO)]], "", id="parts of different rounds"),
        pytest.param([[part(0, 1, ""), part(1, 1, "")]], "", id="parts without a name in common"),
        pytest.param(
            [[part(0, 1, "a-5"), part(0, 2, "a-6")], [part(1, 1, "a-5"), part(1, 2, "a-6")]],
            "1.1/0/2/2/a-6",
            id="the newer of two saves with parts",
        ),
        pytest.param(
            [[part(0, 1, "a-5"), part(0, 2, "a-6")], [part(1, 1, "a-5")]],
            "1.1/0/1/2/a-5",
            id="the last save of which all parts are held",
        ),
    ],
)
def test_the_newest_complete_save_is_chosen(held: list[list[HeldSave]], chosen: str) -> None:
    assert choose([member(index, *saves) for index, saves in enumerate(held)]) == chosen


@pytest.mark.parametrize(
    ("held", "durable", "chosen"),
    [
        pytest.param([], [save(ONE, 0, 1)], "1.1/0/1", id="what is durable, after all memory is lost"),
        pytest.param([save(ONE, 0, 2)], [save(ONE, 0, 1)], "1.1/0/2", id="memory has a newer save"),
        pytest.param([save(ONE, 0, 2)], [save(TWO, 0, 1)], "1.2/0/1", id="the durable save is of a later round"),
        pytest.param([part(1, 1, "a-6")], [part(0, 1, "a-5")], "1.1/0/1/2/a-5", id="a durable save has all parts"),
        pytest.param([], [save(RoundId(0, 3, 7), 0, 9)], "0.3.7/0/9", id="the save of an earlier job"),
        pytest.param([save(ONE, 0, 1)], [save(RoundId(0, 3, 7), 0, 9)], "1.1/0/1", id="a save of this job before it"),
    ],
)
def test_the_newest_save_of_memory_and_durable_storage_is_chosen(
    held: list[HeldSave], durable: list[HeldSave], chosen: str
) -> None:
    members = [replace(member(0, *held), durable=()), replace(member(1), durable=tuple(durable))]
    assert choose(members) == chosen


def stored(label: str, *owners: int, number: int = 0, round_: RoundId = ONE, writers: int = 2) -> DurableParts:
    return DurableParts(round_, number, writers, label, sum(1 << owner for owner in owners))


@pytest.mark.parametrize(
    ("held", "parts", "chosen"),
    [
        pytest.param([part(0, 4, "a-5")], [stored("a-5", 1)], "1.1/0/4/2/a-5", id="rank 1's part is durable alone"),
        pytest.param([part(1, 9, "a-5")], [stored("a-5", 0, number=4)], "1.1/0/4/2/a-5", id="rank 0's is"),
        pytest.param([], [stored("a-5", 0, number=4), stored("a-5", 1)], "1.1/0/4/2/a-5", id="members saw one each"),
        pytest.param([part(0, 4, "a-5")], [stored("a-6", 1)], "", id="of different saves"),
        pytest.param([part(0, 4, "a-5")], [stored("a-5", 1, round_=TWO)], "", id="of different rounds"),
        pytest.param([part(0, 4, "a-5")], [stored("a-5", 1, writers=3)], "", id="of different numbers of writers"),
        pytest.param([part(0, 4, "a-5")], [stored("a-5", 0, number=4)], "", id="the same part twice"),
        pytest.param(
            [part(0, 4, "a-5"), part(0, 5, "a-6"), part(1, 2, "a-5")],
            [stored("a-6", 1)],
            "1.1/0/5/2/a-6",
            id="before an older save in memory",
        ),
        pytest.param(
            [part(0, 4, "a-5"), part(0, 5, "a-6"), part(1, 2, "a-6")],
            [stored("a-5", 1)],
            "1.1/0/5/2/a-6",
            id="after a newer save in memory",
        ),
        pytest.param(
            [part(0, 5, "a-5"), part(0, 5, "a-5")],
            [stored("a-5", 0, 1, number=4)],
            "1.1/0/5/2/a-5",
            id="with a later part of rank 0 in memory",
        ),
    ],
)
def test_parts_of_one_save_in_memory_and_on_durable_storage_count_together(
    held: list[HeldSave], parts: list[DurableParts], chosen: str
) -> None:
    members = [member(0, *held), *(replace(member(1 + at), parts=(each,)) for at, each in enumerate(parts))]
    assert choose(members) == chosen


SPREAD = st.dictionaries(
    st.tuples(st.sampled_from([ONE, TWO]), st.sampled_from(["a-5", "a-6", "a-7"]), st.integers(0, 2)),
    st.sampled_from(["memory", "durable", "both"]),
)
NUMBERS = {"a-5": 1, "a-6": 2, "a-7": 3}


@given(SPREAD)
def test_a_chosen_save_is_whole_and_the_place_of_its_parts_does_not_matter(
    spread: dict[tuple[RoundId, str, int], str],
) -> None:
    held = {key: save(key[0], key[2], NUMBERS[key[1]], 3, key[1]) for key in spread}
    saves = {(round_, label) for round_, label, _ in spread}
    parts = [
        stored(label, *owners, number=NUMBERS[label] * (0 in owners), round_=round_, writers=3)
        for round_, label in saves
        if (owners := [key[2] for key, where in spread.items() if key[:2] == (round_, label) and where != "memory"])
    ]
    in_memory = [held[key] for key, where in spread.items() if where != "durable"]
    found = choose([member(0, *in_memory), replace(member(1), parts=tuple(parts))])
    assert found == choose([member(0, *held.values())])
    whole = [each for each in saves if all((*each, owner) in spread for owner in range(3))]
    newest = max(whole, key=lambda each: (each[0], NUMBERS[each[1]]), default=None)
    assert found == ("" if newest is None else f"{newest[0]}/0/{NUMBERS[newest[1]]}/3/{newest[1]}")


@pytest.mark.parametrize(
    "text", ["", "3", "a/b/c", "1.1/0", "1.1/0/x", "1.1/0/1/2", "9" * 30 + ".1/0/1", "1.1/0/1/two/a"]
)
def test_a_text_that_names_no_save_is_no_choice(text: str) -> None:
    assert Choice.from_text(text) is None


@pytest.mark.parametrize("choice", [Choice(ONE, 3, 7), Choice(RoundId(1, 2, 3), 0, 7, 2, "a/step-5")])
def test_a_choice_comes_back_as_it_was(choice: Choice) -> None:
    assert Choice.from_text(choice.to_text()) == choice


def test_all_members_of_a_round_receive_the_choice() -> None:
    job = running(2)
    first = job.round
    assert first is not None
    assert [job.assigned(index).checkpoint for index in range(2)] == ["", ""]
    job.fails(0)
    job.says(0, Join(20000, first, held=(save(first, 0, 1),)))
    job.says(1, Join(20001, first, held=(save(first, 0, 2),)))
    job.passes(5)
    assert [job.assigned(index).checkpoint for index in range(2)] == [f"{first}/0/2"] * 2


def test_each_member_of_a_round_receives_its_zone() -> None:
    job = Job(2)
    job.expect({0: expected(0, zone="eu-1a"), 1: expected(1)})
    job.waits(0, 1)
    assert [job.assigned(index).zone for index in range(2)] == ["eu-1a", ""]


def test_a_member_without_checkpoints_is_a_problem_of_the_job_until_it_keeps_them_again() -> None:
    job = running(2)
    job.says(0, Heartbeat(checkpoint_problem="the memory is full"))
    assert job.problem("CheckpointsNotKept") == "pod-0: the memory is full"
    job.says(1, Heartbeat(checkpoint_problem="no room either"))
    assert job.problem("CheckpointsNotKept") == "pod-0: the memory is full (and 1 more)"
    job.says(0, Heartbeat())
    assert job.problem("CheckpointsNotKept") == "pod-1: no room either"
    job.says(1, Heartbeat())
    assert job.problem("CheckpointsNotKept") is None
    assert [event.partition(":")[0] for event in job.events].count("CheckpointsNotKept") == 1
