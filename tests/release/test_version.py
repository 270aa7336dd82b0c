"""One version, dated changes, and what keeps a release from being made."""

import pytest

from pytorchjob_agent import __version__
from release.changelog import FILE, changes, dated, mistakes, sections
from release.check import Facts, problems
from release.common import StepError
from release.version import COPIES, parsed
from tests.release.support import ROOT, Checkout

LOG = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.9.0] - 2026-01-31

### Fixed

- Another thing.
"""


def test_every_copy_is_the_version_of_the_source() -> None:
    for place in COPIES:
        found = type(place)(ROOT / place.path, place.pattern).read()
        assert {*found} == {__version__}, place.path


def test_the_changelog_is_as_keep_a_changelog_has_it() -> None:
    assert [*mistakes((ROOT / FILE).read_text())] == []
    assert "Unreleased" in sections((ROOT / FILE).read_text())


def test_a_new_version_is_written_everywhere_and_dates_the_changes(checkout: Checkout) -> None:
    done = checkout.run("version", "v1.2.3", DATE="2026-02-03")
    assert (done.status, done.output) == (0, "1.2.3\n"), done.error
    assert '__version__ = "1.2.3"\n' in checkout.text("operator/pytorchjob_agent/__init__.py")
    chart = checkout.text("charts/pytorchjob-operator/Chart.yaml")
    assert "\nversion: 1.2.3\n" in chart
    assert '\nappVersion: "1.2.3"\n' in chart
    assert "newTag: 1.2.3\n" in checkout.text("manifests/image/kustomization.yaml")
    log = checkout.text("CHANGELOG.md")
    assert "## [Unreleased]\n\n## [1.2.3] - 2026-02-03\n" in log
    assert changes(log, "Unreleased") == ""


def test_without_a_version_the_copies_follow_the_source(checkout: Checkout) -> None:
    source = checkout.path / "operator/pytorchjob_agent/__init__.py"
    source.write_text(source.read_text().replace(__version__, "7.0.0"))
    assert checkout.run("version").output == "7.0.0\n"
    assert "\nversion: 7.0.0\n" in checkout.text("charts/pytorchjob-operator/Chart.yaml")
    assert "7.0.0" not in checkout.text("CHANGELOG.md")


@pytest.mark.parametrize(("text", "version"), [("1.2.3", "1.2.3"), ("v0.1.0", "0.1.0"), ("1.2.3-rc.1", "1.2.3-rc.1")])
def test_versions(text: str, version: str) -> None:
    assert parsed(text) == version


@pytest.mark.parametrize("text", ["1.2", "1.02.3", "latest", "1.2.3-beta", "1.2.3 ", ""])
def test_what_is_not_a_version(text: str) -> None:
    with pytest.raises(StepError, match="is not a version") as failed:
        parsed(text)
    assert failed.value.status == 2


def test_the_changes_of_one_version_are_printed(checkout: Checkout) -> None:
    (checkout.path / FILE).write_text(LOG)
    assert checkout.run("changelog", "v0.9.0").output == "### Fixed\n\n- Another thing.\n"
    missing = checkout.run("changelog", "0.8.0")
    assert (missing.status, missing.sentence) == (1, "CHANGELOG.md has no section for 0.8.0")
    assert checkout.run("changelog").status == 2


def test_a_version_is_dated_once() -> None:
    made = dated(LOG, "1.0.0", "2026-02-03")
    assert changes(made, "1.0.0") == "### Added\n\n- A thing."
    with pytest.raises(StepError, match=r"has a section for 1\.0\.0 already"):
        dated(made, "1.0.0", "2026-02-04")
    with pytest.raises(StepError, match="has no section"):
        dated("# Changelog\n", "1.0.0", "2026-02-03")


MISTAKES = [
    pytest.param("## 1.0.0 (soon)\n", "is not `## [VERSION] - DATE`", id="a heading of another form"),
    pytest.param("## [1.0.0]\n", "has no date", id="no date"),
    pytest.param("## [1.0.0] - 3.2.2026\n", "has no date of the form", id="another form of date"),
    pytest.param("## [1.0.0] - 2026-02-03\n\n### News\n", "`### News` is none of Added", id="an unknown kind"),
    pytest.param("## [1.0.0] - 2026-02-03\n\n- x\n", "above the first kind", id="no kind"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_mistakes_of_a_changelog_are_named(text: str, words: str) -> None:
    assert [found for found in mistakes(text) if words in found]


READY = Facts("0.9.0", "0.9.0", {"Chart.yaml": ["0.9.0", "0.9.0"]}, LOG, "", False)


def test_nothing_keeps_a_finished_version_from_being_released() -> None:
    assert [*problems(READY)] == []


UNREADY = [
    pytest.param({"source": "0.8.0"}, "this checkout is version 0.8.0, not 0.9.0", id="another version"),
    pytest.param({"copies": {"Chart.yaml": ["0.8.0"]}}, "Chart.yaml has version 0.8.0, not 0.9.0", id="a copy"),
    pytest.param({"copies": {"Chart.yaml": []}}, "Chart.yaml has version nothing", id="a copy that is gone"),
    pytest.param({"log": "# Changelog\n"}, "CHANGELOG.md has no section for 0.9.0", id="no changes"),
    pytest.param({"log": "## [0.9.0] - 2026-01-31\n"}, "lists no change of 0.9.0", id="an empty section"),
    pytest.param({"log": LOG + "## x\n"}, "`## x` is not", id="a mistake in the changelog"),
    pytest.param({"changed": " M a\n M b\n"}, "2 files are not committed", id="two changes"),
    pytest.param({"changed": " M a\n"}, "1 file is not committed", id="a change"),
    pytest.param({"tagged_elsewhere": True}, "the tag v0.9.0 names another commit", id="a tag that would move"),
]


@pytest.mark.parametrize(("change", "words"), UNREADY)
def test_what_keeps_it_from_being_released_is_named(change: dict[str, object], words: str) -> None:
    found = [*problems(Facts(**{**READY.__dict__, **change}))]  # type: ignore[arg-type]
    assert [sentence for sentence, _ in found if words in sentence]
    assert all(remedy for _, remedy in found)


def test_a_release_from_its_commit_and_from_its_tag(checkout: Checkout) -> None:
    checkout.link("git")
    for words in (["init"], ["add", "."], ["commit", "-m", "one"]):
        checkout.git(*words)
    undated = checkout.run("check", VERSION="1.2.3")
    assert (undated.status, "this checkout is version" in undated.error) == (1, True)
    assert checkout.run("version", "1.2.3").status == 0
    assert "files are not committed" in checkout.run("check", VERSION="1.2.3").error
    checkout.git("commit", "-am", "two")
    ready = checkout.run("check", VERSION="v1.2.3")
    assert (ready.status, ready.output) == (0, "1.2.3 can be released: tag this commit v1.2.3\n"), ready.error
    checkout.git("tag", "v1.2.3")
    assert checkout.run("check", "1.2.3").status == 0
    checkout.git("commit", "--allow-empty", "-m", "three")
    assert "the tag v1.2.3 names another commit" in checkout.run("check", "1.2.3").error
    assert checkout.run("check", "soon").status == 2
