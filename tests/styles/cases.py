"""The cases of the tests: some styles with one fault, and in `make test-long` all of them, also with twenty."""

import random
from pathlib import Path

import pytest

from tests.styles.run import run
from tests.styles.styles import STYLES

_RUNS = Path(__file__).parents[2] / "out" / "styles.jsonl"


def cases(family: str) -> pytest.MarkDecorator:
    """The styles of a family."""
    chosen = {name: style for name, style in STYLES.items() if style.family == family}
    one = [pytest.param(name, 1, id=name, marks=_marks(300, rarely=not style.often)) for name, style in chosen.items()]
    many = [pytest.param(name, 20, id=f"{name}, 20 faults", marks=_marks(1800, rarely=True)) for name in chosen]
    return pytest.mark.parametrize(("style", "kills"), [*one, *many])


def _marks(seconds: int, *, rarely: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.torch, pytest.mark.timeout(seconds), *[pytest.mark.long] * rarely]


def check(style: str, kills: int, folder: Path) -> None:
    """Disturb the style at random moments; the message of a failure has what repeats them."""
    outcome = run(style, kills, random.randrange(10**6), folder)
    _RUNS.parent.mkdir(exist_ok=True)
    with _RUNS.open("a") as runs:
        runs.write(outcome.to_json() + "\n")
    assert not outcome.wrong, outcome.to_json()
