"""docs/shell-blocks.md: every shell block is executed by a test that exists, or the reason why none does is there."""

from pathlib import Path

import pytest

from tests.citations import collected
from tests.shell.blocks import every, fenced, named, pages
from tests.shell.following import script
from tests.shell.page import PAGE, insert
from tests.shell.register import EXECUTED, NOT_EXECUTED, README

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "cosign ",
    "curl ",
    "docker ",
    "git ",
    "helm ",
    "kubectl ",
    "make ",
    "pip ",
    "pytorchjob-agent ",
    "torchrun ",
)
CLUSTER = f"{README}: On a cluster"


def test_every_block_is_in_one_class() -> None:
    keys = [block.key for block in every()]
    assert sorted(keys) == sorted([*EXECUTED, *NOT_EXECUTED])
    assert len(keys) > 50


def test_every_test_that_is_named_exists() -> None:
    tests = {entry.test for entry in EXECUTED.values()} | {entry.instead for entry in NOT_EXECUTED.values()} - {""}
    assert tests - collected(tests) == set()


@pytest.mark.parametrize("key", list(EXECUTED))
def test_what_is_left_out_is_in_the_block_and_something_remains(key: str) -> None:
    text = named(key).text
    assert [words for words in EXECUTED[key].without if words not in text] == []
    assert script(text, EXECUTED[key].without).strip()


def test_what_the_cluster_test_executes_is_in_readmes_section() -> None:
    shared = [key for key, entry in EXECUTED.items() if entry.test == EXECUTED[CLUSTER].test]
    assert [key for key in shared if named(key).text not in named(CLUSTER).text] == []


@pytest.mark.parametrize("page", pages())
def test_every_block_names_its_language(page: str) -> None:
    found = list(fenced(page, (ROOT / page).read_text()))
    assert [block.first_line for block in found if not block.language] == []


@pytest.mark.parametrize("page", pages())
def test_a_block_of_text_is_no_shell_block(page: str) -> None:
    found = [block for block in fenced(page, (ROOT / page).read_text()) if block.language == "text"]
    transcript = "transcript" in page
    assert [block.first_line for block in found if block.first_line.startswith(COMMANDS) and not transcript] == []


def test_the_page_is_generated() -> None:
    text = (ROOT / PAGE).read_text()
    assert insert(text) == text


@pytest.mark.parametrize(
    ("text", "without", "left"),
    [
        pytest.param("a\nb\n", (), "a\nb\n", id="everything"),
        pytest.param("a one\nb two\n", ("two",), "a one\n", id="a line"),
        pytest.param("a --wait --x\n", ("--wait",), "a --x\n", id="an option"),
        pytest.param("a \\\n  --x --wait\n", ("--wait",), "a \\\n  --x\n", id="an option behind a continued line"),
    ],
)
def test_what_is_run(text: str, without: tuple[str, ...], left: str) -> None:
    assert script(text, without) == left


PAGE_OF_BLOCKS = """# Top

```sh
make a    # why
make b
```

## Below

1. Item

   ```sh
   # a comment
   make c
     --d
   ```

```text
output
```

```sh
make e
```
"""


def test_blocks_are_found_with_their_headings() -> None:
    found = [block for block in fenced("a.md", PAGE_OF_BLOCKS) if block.language == "sh"]
    assert [(block.key, block.first_line, block.text) for block in found] == [
        ("a.md: Top", "make a", "make a    # why\nmake b\n"),
        ("a.md: Below", "make c", "# a comment\nmake c\n  --d\n"),
        ("a.md: Below (2)", "make e", "make e\n"),
    ]
