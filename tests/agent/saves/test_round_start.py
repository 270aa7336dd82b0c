"""What all members of a round start with, from what each of them offers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, Parts, SaveId
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.round_start import Part, Start, StartKind, decide
from tests.simulation.saves import Store

ONE, TWO, NOW = RoundId(1, 1), RoundId(1, 2), RoundId(1, 3)


def save(round_: RoundId, owner: int, number: int, writers: int = 1, label: str = "") -> HeldSave:
    return HeldSave(SaveId(round_, owner, number), 5, writers, label)


def part(owner: int, number: int, label: str, round_: RoundId = ONE) -> HeldSave:
    return save(round_, owner, number, 2, label)


def member(rank: int, *held: HeldSave, files: str = "", left: bool = False, directory: str = "") -> Peer:
    return Peer(rank, "10.0.0.1", 1, "node", directory or f"directory-{rank}", held, files=files, left=left)


def choose(members: list[Peer]) -> str:
    """The chosen save; empty: none."""
    start = decide(members, NOW)
    assert (start.choice is None) == (start.kind is not StartKind.RESTORE)
    return "" if start.choice is None else start.choice.to_text()


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
        pytest.param([[save(RoundId(9, 1), 0, 1)], [save(ONE, 1, 1)]], "1.1/1/1", id="none of a later round: a lie"),
        pytest.param([[save(NOW, 0, 1)], []], "", id="none of this round: a lie"),
        pytest.param([[part(0, 1, "a-5", NOW)], [part(1, 1, "a-5", NOW)]], "", id="no parts of this round: a lie"),
        pytest.param([[save(ONE, 0, number) for number in range(40)], []], "1.1/0/39", id="the newest of many"),
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


def stored(label: str, *owners: int, number: int = 0, round_: RoundId = ONE, writers: int = 2) -> Parts:
    return Parts(round_, number, writers, label, sum(1 << owner for owner in owners))


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
    held: list[HeldSave], parts: list[Parts], chosen: str
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


def named(owner: int, digest: str, label: str = "state.pt") -> HeldSave:
    """A save of one writer, with the largest file that it changed."""
    return HeldSave(SaveId(ONE, owner, 1), 5, 1, label, digest)


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        pytest.param([member(0), member(1)], StartKind.NOTHING, id="no files"),
        pytest.param([member(0, files="a"), member(1, files="a")], StartKind.NOTHING, id="the same files"),
        pytest.param([member(0, files="a"), member(1)], StartKind.SET_ASIDE, id="one member has files"),
        pytest.param([member(0, files="a"), member(1, files="b")], StartKind.SET_ASIDE, id="files differ"),
        pytest.param([member(0, files="a", left=True), member(1)], StartKind.LEAVE, id="a style that is not held"),
        pytest.param(
            [member(0, save(ONE, 0, 1), files="a", left=True), member(1)], StartKind.RESTORE, id="but one was held"
        ),
        pytest.param(
            [member(0, named(0, "a")), member(1, named(1, "b"))], StartKind.LEAVE, id="each its own, of one name"
        ),
        pytest.param(
            [member(0, named(0, "a"), named(1, "b")), member(1)], StartKind.LEAVE, id="also if one pod is lost"
        ),
        pytest.param([member(0, named(0, "a")), member(1, named(1, "a"))], StartKind.RESTORE, id="all the same file"),
        pytest.param(
            [member(0, named(0, "a")), member(1, named(1, "b", "table.csv"))], StartKind.RESTORE, id="a table of rank 1"
        ),
        pytest.param([member(0, directory="d"), member(1, directory="d")], StartKind.SHARED, id="one directory"),
        pytest.param([member(0), Peer(1, "10.0.0.1", 1, "", "")], StartKind.NOTHING, id="a member without directory"),
        pytest.param(
            [Peer(0, "10.0.0.1", 1, "", ""), Peer(1, "10.0.0.1", 1, "", "")], StartKind.NOTHING, id="two without"
        ),
    ],
)
def test_what_members_start_with(members: list[Peer], kind: StartKind) -> None:
    assert decide(members, NOW).kind is kind


def own(owner: int) -> HeldSave:
    """A part that only its own rank loads."""
    return HeldSave(SaveId(ONE, owner, 1), 5, 3, "step-5", own=True)


@pytest.mark.parametrize(
    ("offers", "rank", "size", "needed"),
    [
        pytest.param([[own(0)], [own(1)], [own(2)]], 1, 3, [1], id="its own part of a save by rank"),
        pytest.param([[own(0), own(1)], [own(2)]], 1, 2, [0, 1, 2], id="all, as the number of members has changed"),
        pytest.param([[part(0, 1, "a-5")], [part(1, 1, "a-5")]], 1, 2, [0, 1], id="all parts of a common save"),
        pytest.param([[save(ONE, 0, 1)], [], []], 2, 3, [0], id="the part of the rank that saves"),
    ],
)
def test_the_parts_that_a_member_fetches(offers: list[list[HeldSave]], rank: int, size: int, needed: list[int]) -> None:
    assert decide([member(at, *held) for at, held in enumerate(offers)], NOW).needed_by(rank, size) == needed


@pytest.mark.parametrize(
    ("offers", "copies", "lacking"),
    [
        pytest.param([[own(0), own(2)], [own(1), own(0)], [own(2), own(1)]], 1, {}, id="all copies are there"),
        pytest.param([[own(0), own(2)], [], [own(2), own(1)]], 1, {0: 1}, id="a member that held one is new"),
        pytest.param([[own(0), own(2)], [], [own(2), own(1)]], 2, {0: 2, 1: 1, 2: 1}, id="two copies of each"),
        pytest.param([[own(0), own(1), own(2)], [], []], 9, {0: 2, 1: 1, 2: 1}, id="no more copies than members"),
        pytest.param([[own(0), own(1)], [own(2)]], 1, {}, id="each member loads all parts"),
        pytest.param([[part(0, 1, "a-5"), part(1, 1, "a-5")], []], 1, {}, id="each member loads a common save"),
    ],
)
def test_parts_that_too_few_members_hold(offers: list[list[HeldSave]], copies: int, lacking: dict[int, int]) -> None:
    start = decide([member(at, *held) for at, held in enumerate(offers)], NOW)
    assert start.lacking(len(offers), copies) == lacking


def test_the_best_members_that_lack_a_part_fetch_a_copy() -> None:
    start = Start(StartKind.RESTORE, Choice(ONE), {0: Part((2,), own=True)})
    assert start.new_keepers(0, [2, 1, 3, 4], 2) == [1, 3]


@given(st.integers(1, 300), st.integers(1, 4))
def test_a_member_asks_above_it_first_and_no_member_serves_many(size: int, holders: int) -> None:
    held = tuple(range(min(holders, size)))
    start = Start(StartKind.RESTORE, Choice(ONE), {0: Part(held)})
    served: dict[int, int] = {}
    for rank in range(len(held), size):
        first, *others = start.sources(0, rank, size)
        served[first] = served.get(first, 0) + 1
        assert rank not in (first, *others)
        assert {*held} <= {first, *others}
        seen = {rank}
        while first not in held:  # the way up ends at a holder
            assert first not in seen
            seen.add(first)
            first = start.sources(0, first, size)[0]
    assert all(count <= 4 * (1 + (rank in held)) for rank, count in served.items())


@pytest.mark.parametrize("alone", [pytest.param(True, id="by rank"), pytest.param(False, id="all parts in each pod")])
def test_what_a_thousand_members_publish_is_read_by_the_others(alone: bool) -> None:
    """Also if each has four holders of its part, the most that the decision names."""
    size, offers = 1000, []
    for rank in range(size):
        owners = [(rank + more) % size for more in range(4)] if alone else range(size)
        held = [HeldSave(SaveId(ONE, owner, 7), 5, size, "step-5", own=alone) for owner in owners]
        offers.append(member(rank, *held))
    assigned = Assigned(NOW, 0, size, 0, size, "10.0.0.1", 1, 0, secret="secret")
    store = SignedStore(Store(), assigned)
    published = []
    for offer in offers:
        store.write("saves", offer.to_json())
        found = store.read("saves")
        assert found is not None
        published.append(Peer.from_json(offer.rank, found.value))
    start = decide(published, NOW)
    store.write("start", start.to_json())
    found = store.read("start")
    assert found is not None
    assert Start.from_json(found.value) == start
    assert start.choice is not None
    assert len(start.needed_by(5, size)) == (1 if alone else size)
    assert all(len(part.holders) == 4 for part in start.parts.values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "1",
        '["restore", "", [], ""]',
        '["else", "", [], ""]',
        '["nothing", "1.1/0/1", [], ""]',
        '["restore", "1.1/0/1", [[0]], ""]',
    ],
)
def test_a_text_that_is_no_decision_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Start.from_json(text)


def test_a_decision_comes_back_as_it_was() -> None:
    start = decide([member(0, own(0)), member(1, own(1)), member(2, own(2), own(0))], NOW)
    assert start.parts[0] == Part((0, 2), own=True)
    assert Start.from_json(start.to_json()) == start
