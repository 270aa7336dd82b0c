"""The commands of docs/releasing.md that take no hours, in a clone whose origin is a folder."""

import subprocess
from pathlib import Path

import pytest

from tests.readme import clone
from tests.shell.following import follow, run_by
from tests.shell.register import CLONE


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return clone(tmp_path / "clone")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_version_begins_with_one_command(checkout: Path) -> None:
    follow(run_by(f"{CLONE}::test_a_version_begins_with_one_command")[0], checkout)
    assert '__version__ = "1.2.3"' in (checkout / "operator/pytorchjob_agent/__init__.py").read_text()
    assert "## [1.2.3] - " in (checkout / "CHANGELOG.md").read_text()


def test_a_version_that_was_begun_and_committed_passes_the_check(checkout: Path) -> None:
    begin, check = (
        run_by(f"{CLONE}::{test.__name__}")[0]
        for test in (
            test_a_version_begins_with_one_command,
            test_a_version_that_was_begun_and_committed_passes_the_check,
        )
    )
    with pytest.raises(AssertionError, match=r"this checkout is version .*, not 1\.2\.3"):
        follow(check, checkout)
    follow(begin, checkout)
    git(checkout, "add", "--all")
    git(checkout, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "t")
    assert "1.2.3" in follow(check, checkout)


def test_the_tag_is_made_and_pushed(checkout: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "origin")
    git(checkout, "remote", "set-url", "origin", str(tmp_path / "origin"))
    follow(run_by(f"{CLONE}::test_the_tag_is_made_and_pushed")[0], checkout)
    assert git(tmp_path / "origin", "tag", "--list") == "v1.2.3"
    assert git(tmp_path / "origin", "rev-parse", "v1.2.3") == git(checkout, "rev-parse", "HEAD")
