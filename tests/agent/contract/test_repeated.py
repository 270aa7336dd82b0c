"""Which failures every start repeats: tables."""

from collections.abc import Sequence

import pytest

from pytorchjob_agent.contract.repeated import HANG_SECONDS, Hangs, why_repeated


@pytest.mark.parametrize(
    ("errors", "code", "early", "repeated"),
    [
        pytest.param(["ModuleNotFoundError"], 1, False, True, id="a missing module, whenever"),
        pytest.param(["SyntaxError"], 1, True, True, id="a script that is no Python"),
        pytest.param(["RuntimeError", "ImportError"], 1, True, False, id="an error that another one caused"),
        pytest.param(["ValueError"], 1, True, False, id="another error"),
        pytest.param([], 2, True, True, id="a wrong command line"),
        pytest.param([], 2, False, False, id="the same code after progress"),
        pytest.param([], 1, True, False, id="an unknown error"),
    ],
)
def test_what_every_start_repeats(errors: list[str], code: int, early: bool, repeated: bool) -> None:
    assert bool(why_repeated(errors, code, early=early)) is repeated


@pytest.mark.parametrize(
    ("hangs", "permanent"),
    [
        pytest.param([("a", None, 0), ("a", None, 1), ("a", None, 2)], True, id="three at the same place"),
        pytest.param([("a", None, 0), ("a", None, 1)], False, id="two"),
        pytest.param([("a", None, 0), ("b", None, 1), ("a", None, 2)], False, id="another place between"),
        pytest.param([("", None, 0), ("", None, 1), ("", None, 2)], False, id="unknown places"),
        pytest.param([("a", 5, 0), ("a", 5, 1), ("a", 5, 2)], True, id="at the same step"),
        pytest.param([("a", 5, 0), ("a", 6, 1), ("a", 6, 2)], False, id="after a further step"),
        pytest.param([("a", 5, 0), ("a", 6, 1), ("a", 6, 2), ("a", 6, 3)], True, id="three after a further step"),
        pytest.param([("a", None, 0), ("a", None, HANG_SECONDS), ("a", None, HANG_SECONDS + 1)], False, id="far apart"),
    ],
)
def test_a_hang_that_comes_again(hangs: Sequence[tuple[str, int | None, float]], permanent: bool) -> None:
    row = Hangs()
    for place, step, at in hangs:
        row = row.then(place, step, at)
    assert bool(row.why) is permanent
