"""docs/torchrun.md lists every flag of the oldest and the newest torch, and what the agent's code does with it."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch")
from torch.distributed.run import get_args_parser

from pytorchjob_agent import torch_compat
from pytorchjob_agent.command import flags
from pytorchjob_agent.command.flags import Effect

pytestmark = pytest.mark.torch
PAGE = Path(__file__).parents[2] / "docs" / "torchrun.md"
OLDEST, NEWEST = (2, 4), (2, 15)


class Row(NamedTuple):
    """One flag of the table."""

    flag: str
    oldest: str
    newest: str
    standalone: str
    member: str


def rows() -> list[Row]:
    """The table of the page."""
    text = PAGE.read_text().partition("## Table")[2]
    lines = [line for line in text.splitlines() if line.startswith("| `--")]
    return [Row(*(cell.strip() for cell in line.strip().strip("|").split(" | "))) for line in lines]


def known_flags() -> list[str]:
    """The flags of the installed torch, by their long names with hyphens, in the parser's order."""
    options = (action.option_strings for action in get_args_parser()._actions)
    long = [[name for name in names if name.startswith("--")] for names in options]
    return [names[0] for names in long if names and names[0] != "--help"]


def name(row: Row) -> str:
    """The parser's name of a flag."""
    return row.flag.strip("`").removeprefix("--").replace("-", "_")


def test_the_table_has_the_flags_of_the_installed_torch() -> None:
    version = torch_compat.version()
    if version not in (OLDEST, NEWEST):
        pytest.skip(f"the table has no column for torch {version}")
    listed = [row.flag.strip("`") for row in rows() if (row.oldest if version == OLDEST else row.newest) == "yes"]
    assert sorted(listed) == sorted(known_flags())


def test_the_columns_are_those_of_the_supported_versions() -> None:
    heading = re.search(r"^\| flag \| (.+?) \| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    assert heading is not None
    assert heading.groups() == tuple(".".join(map(str, version)) for version in (OLDEST, NEWEST))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.flag)
def test_a_row_has_the_effect_that_the_code_has(row: Row) -> None:
    expected = (flags.STANDALONE.get(name(row), Effect.HONOURED), flags.MEMBER.get(name(row), Effect.HONOURED))
    assert (effect(row.standalone), effect(row.member)) == expected


def effect(cell: str) -> str:
    """The word at the beginning of a cell."""
    return cell.partition(":")[0]


def test_every_flag_of_the_code_has_a_row() -> None:
    assert {*flags.STANDALONE, *flags.MEMBER} <= {name(row) for row in rows()}
