"""Every shell block of the documentation is executed by a test, or the reason why none does is there."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e import test_install_pages, test_pages
from tests.shell.blocks import every, fenced, named, pages
from tests.shell.following import WATCHED, follow_text, interrupted, run_by, script
from tests.shell.register import BY_HAND, EXECUTED, INSTALL_PAGES, NOT_EXECUTED, PAGES, README

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
    assert sorted(keys) == sorted([*EXECUTED, *BY_HAND, *NOT_EXECUTED])
    assert len(keys) > 50


@pytest.mark.parametrize(("test", "cases"), [(PAGES, test_pages.CASES), (INSTALL_PAGES, test_install_pages.CASES)])
def test_a_test_on_a_cluster_has_a_case_for_each_of_its_blocks(test: str, cases: Mapping[str, object]) -> None:
    """Those tests run now and then. What they lack shows at once here."""
    assert {*cases} == {*run_by(test)}


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


def test_what_watches_without_an_end_is_interrupted_as_a_reader_would() -> None:
    text = "kubectl apply -f a.yaml\nkubectl get ptj -w\n"
    watched = f"timeout --signal=INT {WATCHED} kubectl get ptj -w || test $? = 124"
    assert interrupted(text) == f"kubectl apply -f a.yaml\n{watched}\n"


def test_the_error_of_a_block_has_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="one\ntwo"):
        follow_text("echo one\necho two >&2\nfalse\necho three\n", tmp_path)


def test_what_a_block_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    assert follow_text("sleep 1000 & echo $!\n", tmp_path, seconds=20)


def test_a_signal_that_comes_too_early_is_sent_again(tmp_path: Path) -> None:
    loses_the_first = "(trap 'trap - TERM' TERM; echo ready > ready; while true; do sleep 0.1; done) &\n"
    assert follow_text(f"{loses_the_first}until test -e ready; do sleep 0.1; done\n", tmp_path, seconds=20) == ""


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
