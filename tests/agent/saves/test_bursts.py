"""Which files a script saves together: what is taken as a save, and what waits for the rest."""

from collections.abc import Iterable

import pytest

from pytorchjob_agent.saves.taking import ALONE_SECONDS, Bursts

PAIR = ("model.pt", "optimizer.pt")
SHARDS = ("model-1-of-3.pt", "model-2-of-3.pt", "model-3-of-3.pt")


def written(units: Iterable[str], what: str = "once") -> dict[str, object]:
    """These units, with what is in them."""
    return dict.fromkeys(units, what)


@pytest.mark.parametrize(
    ("before", "changed", "is_whole"),
    [
        pytest.param([], PAIR[:1], True, id="the first save: nothing else is known"),
        pytest.param([PAIR], PAIR, True, id="both files again"),
        pytest.param([PAIR], PAIR[:1], False, id="one of two"),
        pytest.param([PAIR, PAIR[:1], PAIR[:1]], PAIR[:1], True, id="one that was a save of its own before"),
        pytest.param([PAIR[:1], PAIR[1:]], PAIR[:1], False, id="one of two that were written with a pause"),
        pytest.param([PAIR[:1], PAIR[1:], PAIR], PAIR[:1], False, id="and again"),
        pytest.param([("a.pt",), ("b.pt",)], ("a.pt",), True, id="one of two that alternate"),
        pytest.param([PAIR], (*PAIR, "best.pt"), True, id="one more than before"),
        pytest.param([PAIR], ("best.pt",), True, id="another file"),
        pytest.param([SHARDS], SHARDS[:2], False, id="two of three shards"),
        pytest.param([("step-10.pt", "step-20.pt"), ("step-30.pt",)], ("step-40.pt",), True, id="the least counts"),
        pytest.param([("step-10.pt",)], ("step-20.pt", "step-30.pt"), True, id="two saves at once"),
    ],
)
def test_what_was_written_together_is_awaited_together(
    before: list[tuple[str, ...]], changed: tuple[str, ...], is_whole: bool
) -> None:
    assert learned(before).is_whole(written(changed), 0.0) is is_whole


@pytest.mark.parametrize(
    ("before", "changed", "is_whole"),
    [
        pytest.param([], PAIR[:1], True, id="the first save"),
        pytest.param([PAIR], PAIR, True, id="both files"),
        pytest.param([PAIR], PAIR[:1], False, id="one of two"),
        pytest.param([PAIR, PAIR], ("best.pt",), False, id="a file of which nothing is known"),
        pytest.param([PAIR[:1]], PAIR[1:], True, id="the other file of the first save"),
    ],
)
def test_after_a_kill_only_what_is_known_to_be_whole_counts(
    before: list[tuple[str, ...]], changed: tuple[str, ...], is_whole: bool
) -> None:
    assert learned(before).is_whole(written(changed), 0.0, ended=True) is is_whole


def learned(saves: list[tuple[str, ...]]) -> Bursts:
    """What is known after these saves, the last of them at -10 s."""
    pauses = [2.0 if save == PAIR[1:] else 10.0 for save in saves]
    bursts, now = Bursts(), -10.0 - sum(pauses)
    for save, pause in zip(saves, pauses, strict=True):
        now += pause
        bursts.is_whole(written(save), now)
        bursts.learn(save, now)
    return bursts


def test_a_part_that_stays_alone_is_a_save_of_its_own() -> None:
    bursts = learned([PAIR])
    assert not bursts.is_whole(written(PAIR[:1]), 5.0)
    assert not bursts.is_whole(written(PAIR[:1]), 5.0 + ALONE_SECONDS - 1)
    assert bursts.is_whole(written(PAIR[:1]), 5.0 + ALONE_SECONDS)


def test_a_part_at_the_end_of_the_workers_is_no_save_however_long_it_was_alone() -> None:
    bursts = learned([PAIR])
    assert not bursts.is_whole(written(PAIR[:1]), 5.0)
    assert not bursts.is_whole(written(PAIR[:1]), 5.0 + ALONE_SECONDS, ended=True)


@pytest.mark.parametrize(
    ("restored", "changed", "is_whole"),
    [
        pytest.param(PAIR, PAIR[:1], False, id="one of two that were restored"),
        pytest.param(PAIR, PAIR, True, id="both"),
        pytest.param(("step-10.pt", "step-20.pt"), ("step-30.pt",), True, id="another one of a kind"),
        pytest.param((*PAIR, "step-10"), ("model.pt", "step-20"), False, id="two of three"),
        pytest.param(SHARDS, SHARDS[:2], False, id="two of three shards"),
        pytest.param(("10-1.pt", "10-2.pt"), ("20-1.pt",), False, id="one of two shards of a step"),
        pytest.param(("1-10.pt", "2-10.pt"), ("1-20.pt",), False, id="the same, with the step behind"),
        pytest.param(("1-10.pt", "2-10.pt"), ("1-20.pt", "2-20.pt"), True, id="both"),
    ],
)
@pytest.mark.parametrize("ended", [False, True], ids=["the workers live", "the workers are killed"])
def test_an_agent_that_has_seen_no_save_awaits_what_it_has_restored(
    restored: tuple[str, ...], changed: tuple[str, ...], is_whole: bool, ended: bool
) -> None:
    bursts = Bursts()
    bursts.begin(restored)
    assert bursts.is_whole(written(changed), 0.0, ended=ended) is is_whole


def test_what_stays_alone_after_a_restore_is_a_save_of_its_own() -> None:
    bursts = Bursts()
    bursts.begin(PAIR)
    assert not bursts.is_whole(written(PAIR[:1]), 0.0)
    assert bursts.is_whole(written(PAIR[:1]), ALONE_SECONDS)
    bursts.learn(PAIR[:1], ALONE_SECONDS)
    assert bursts.is_whole(written(PAIR[:1]), ALONE_SECONDS + 2)


@pytest.mark.parametrize(
    ("restored", "first", "then", "is_whole"),
    [
        pytest.param(("base-1", "delta-2"), ["delta-3"], ["delta-4"], True, id="two deltas, without a base"),
        pytest.param(
            ("base-1", "delta-2"), ["delta-3"], ["base-4"], True, id="a delta and a base: all that was restored"
        ),
        pytest.param(("1-10", "2-10", "state-10"), ["1-20"], ["2-20"], False, id="two shards of a step"),
        pytest.param(("s-0", "s-1", "state"), ["s-0"], ["s-1"], False, id="two shards that are overwritten"),
    ],
)
def test_the_next_save_shows_that_what_was_awaited_was_whole(
    restored: tuple[str, ...], first: list[str], then: list[str], is_whole: bool
) -> None:
    bursts = Bursts()
    bursts.begin(restored)
    assert not bursts.is_whole(written(first), 0.0)
    assert bursts.is_whole(written(first + then), 1.0) is is_whole


@pytest.mark.parametrize("ended", [False, True], ids=["the workers live", "the workers are killed"])
def test_a_file_that_is_written_again_shows_that_it_was_a_save_of_its_own(ended: bool) -> None:
    """A script that writes the best state beside the last one, and from then on the last one alone."""
    bursts = learned([PAIR])
    assert not bursts.is_whole(written(PAIR[:1]), 1.0)
    assert not bursts.is_whole(written(PAIR[:1]), 2.0), "nothing has changed"
    assert bursts.is_whole(written(PAIR[:1], "twice"), 3.0, ended=ended)


@pytest.mark.parametrize(
    ("seen", "changed", "is_whole"),
    [
        pytest.param([PAIR, PAIR], PAIR, True, id="a whole save"),
        pytest.param([PAIR, PAIR], PAIR[:1], False, id="a part of it"),
        pytest.param([("base-1",), ("delta-2",), ("delta-3",)], ("delta-4",), True, id="one of two kinds of saves"),
    ],
)
def test_an_agent_takes_over_what_the_writer_of_its_save_knew(
    seen: list[tuple[str, ...]], changed: tuple[str, ...], is_whole: bool
) -> None:
    bursts = Bursts()
    bursts.begin({unit for save in seen for unit in save})
    bursts.take_over(learned(seen).known)
    assert bursts.is_whole(written(changed), 0.0) is is_whole


def test_what_an_agent_has_seen_itself_counts() -> None:
    bursts = learned([PAIR, PAIR])
    bursts.take_over(((("model.pt", 1),),))
    assert not bursts.is_whole(written(PAIR[:1]), 5.0)


def test_of_a_script_with_endless_kinds_nothing_is_taken_over() -> None:
    """Its manifests would have no room for their files."""
    names = [("".join((chr(97 + at // 26), chr(97 + at % 26))),) for at in range(300)]
    assert learned([each for name in names for each in (name, name)]).known == ()


@pytest.mark.parametrize("known", [[], [PAIR]], ids=["no save was seen", "its saves are known"])
def test_a_part_of_an_earlier_round_is_not_awaited_any_more(known: list[tuple[str, ...]]) -> None:
    """The workers were killed between two files. What the next round writes is another save."""
    bursts = learned(known)
    bursts.begin(PAIR)
    assert not bursts.is_whole(written(PAIR[:1]), 5.0)
    bursts.begin(PAIR)
    assert not bursts.is_whole(written(PAIR[:1]), 5.0 + ALONE_SECONDS)
    assert bursts.is_whole(written(PAIR[:1]), 5.0 + 2 * ALONE_SECONDS)
