"""Shell blocks of the examples' pages that need no cluster, run from the root of the repository as the pages ask."""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local.jobs import ROOT
from tests.local.test_progress import installed
from tests.shell.following import follow, run_by
from tests.shell.register import EXAMPLES

pytest.importorskip("torch")
PYTHON = Path(sys.executable).parent
"""The pages take a library for granted that may be beside this Python alone."""


@dataclass(frozen=True)
class Case:
    """What a page promises, as patterns, with how often each stands in the output."""

    prints: dict[str, int]
    needs: tuple[str, ...] = ()
    folder: Path | None = None
    """Where its job writes checkpoints: the page asks for an empty folder, to train from the beginning."""
    seconds: float = 200


STEPS = 100_000
"""Of the example of autoscaling."""
CASES = {
    "autoscaling/README.md: Autoscaling (2)": Case(
        {
            r"\brank=\d world_size=2 from_step=0$": 2,
            r"\bstep=\d+ members=2 loss=": STEPS,
            rf"\brank=\d done steps={STEPS}$": 2,
        },
        folder=Path("/tmp/autoscaling"),
        seconds=1500,
    ),
    "fsdp2/README.md: FSDP2 with torch.distributed.checkpoint": Case(
        {
            r"\brank=\d world_size=2 from_step=0 pid=": 2,
            r"\bstep=\d+ members=2 loss=": 40,
        },
        folder=Path("/tmp/fsdp2"),
    ),
    "hugging-face/README.md: Hugging Face's Trainer": Case(
        {
            r"\brank=\d world_size=2 resumes from None$": 2,
            r"'loss': '[\d.]+'": 12,
        },
        ("transformers", "accelerate"),
    ),
    "lightning/README.md: Lightning": Case(
        {r"\bworld_size=2 accuracy=0\.[89]\d+$": 1},
        ("lightning",),
    ),
    "three-machines/README.md: torchrun by hand on three machines, and the same as YAML (3)": Case(
        {
            r"\brank=(\d) world_size=3 machine=\1 slope=2\.6281 offset=0\.8282$": 3,
        },
    ),
}


@pytest.fixture
def as_new(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """An earlier run's checkpoints are aside as long as the test takes, and its own do not stay."""
    folder = CASES[request.getfixturevalue("page")].folder
    if folder is None:
        yield
        return
    aside = tmp_path / "aside"
    if folder.exists():
        shutil.move(folder, aside)
    yield
    shutil.rmtree(folder, ignore_errors=True)
    if aside.exists():
        shutil.move(aside, folder)


def test_each_case_is_a_block() -> None:
    assert {f"examples/{page}" for page in CASES} == {*run_by(EXAMPLES)}


@pytest.mark.torch
@pytest.mark.long
@pytest.mark.timeout(1600)
@pytest.mark.usefixtures("as_new")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[installed(name) for name in case.needs]) for page, case in CASES.items()]
)
def test_a_page_of_an_example_works_on_this_machine(page: str) -> None:
    case = CASES[page]
    printed = follow(f"examples/{page}", ROOT, [PYTHON], seconds=case.seconds)
    found = {pattern: len(re.findall(pattern, printed, re.MULTILINE)) for pattern in case.prints}
    assert found == case.prints, printed[-5000:]
