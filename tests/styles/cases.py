"""The cases of the tests: some styles with one fault, and in `make test-long` all of them with five.

`python -m tests.styles --kills 20` takes two hours for all of them: benchmarks/styles.jsonl keeps such runs.
"""

import random
from pathlib import Path

import pytest

from tests.styles.run import run
from tests.styles.styles import STYLES

_MARKS = [pytest.mark.torch, pytest.mark.timeout(600)]
_RUNS = Path(__file__).parents[2] / "out" / "styles.jsonl"


def cases(family: str) -> pytest.MarkDecorator:
    """The styles of a family."""
    chosen = {name: style for name, style in STYLES.items() if style.family == family}
    often = [name for name, style in chosen.items() if style.often]
    one = [pytest.param(name, 1, id=name, marks=_MARKS) for name in often]
    five = [pytest.param(name, 5, id=f"{name}, 5 faults", marks=[*_MARKS, pytest.mark.long]) for name in chosen]
    return pytest.mark.parametrize(("style", "kills"), [*one, *five])


def check(style: str, kills: int, folder: Path) -> None:
    """Disturb the style at random moments; the message of a failure has what repeats them."""
    outcome = run(style, kills, random.randrange(10**6), folder)
    _RUNS.parent.mkdir(exist_ok=True)
    with _RUNS.open("a") as runs:
        runs.write(outcome.to_json() + "\n")
    assert not outcome.wrong, outcome.to_json()
