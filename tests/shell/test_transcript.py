"""The pages with the output of README's commands: they have README's commands of today, and nothing of a machine."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.readme import ROOT, Done, commit
from tests.shell.transcript import FOLDER, PAGES, Page, clean, keep

_ADDRESS_OR_FOLDER = re.compile(r"://|(?<![\w.])/(?:tmp|root|home|Users|work)/|MACHINE")


def test_the_text_names_nothing_of_the_machine_and_has_the_last_state_of_each_line() -> None:
    printed = f"make run\nin /tmp/x/clone/out  \n10 %\r100 %\nfrom https://a.test/b at {socket.gethostname()}.\n"
    assert clean(printed, {"/tmp/x/clone": "CLONE"}) == "make run\nin CLONE/out\n100 %\nfrom ADDRESS at MACHINE."


def missing(commands: list[str], text: str) -> list[str]:
    """The commands that a text does not have, each after the one before it."""
    lines = iter(text.splitlines())
    return [command for command in commands if command not in lines]


def test_a_command_that_is_missing_or_too_early_is_found() -> None:
    assert missing(["a", "b"], "a\nx\nb") == []
    assert missing(["a", "b"], "b\na") == ["b"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_commands_of_readme(page: Page) -> None:
    assert missing(page.commands(), page.path().read_text()) == [], "run `make transcript`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_folder_and_no_address(page: Page) -> None:
    assert _ADDRESS_OR_FOLDER.findall(page.path().read_text()) == []


def test_the_folder_has_no_other_page() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(page.path() for page in PAGES)


def test_a_kept_page_has_the_title_the_commit_and_the_output(tmp_path: Path) -> None:
    keep("local", Done(0, f"make run\nin {ROOT}/out\n"), ROOT, {}, folder=tmp_path)
    text = PAGES[0].path(tmp_path).read_text()
    assert text.startswith("# README's local section, run in a fresh clone\n")
    assert f"at commit {commit(ROOT)}." in text
    assert text.endswith("```text\nmake run\nin CLONE/out\n```\n")


def test_a_commit_is_named_with_the_changes_on_top_of_it(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.test", *words], cwd=tmp_path, check=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    assert re.fullmatch(r"[0-9a-f]+", commit(tmp_path))
    (tmp_path / "new").touch()
    assert re.fullmatch(r"[0-9a-f]+ with uncommitted changes", commit(tmp_path))
