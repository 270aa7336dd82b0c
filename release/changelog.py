"""CHANGELOG.md, in the form of Keep a Changelog: `python3 -m release.changelog VERSION` prints the changes of one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from release.common import StepError, main, show

FILE = Path("CHANGELOG.md")
UNRELEASED = "Unreleased"
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def sections(text: str) -> dict[str, tuple[str | None, str]]:
    """Return each version's date and changes, in the order of the file."""
    headings = [*_HEADING.finditer(text)]
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {
        heading["version"]: (heading["date"], text[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=False)  # without any heading, one end is left
    }


def changes(text: str, version: str) -> str:
    """Return the changes of a version, those that are not released yet if it has none of its own."""
    found = sections(text)
    if version not in found:
        raise StepError(
            f"{FILE} has no section for {version}", f"run `make release-version VERSION={version}`, which dates it"
        )
    return found[version][1]


def dated(text: str, version: str, date: str) -> str:
    """Turn the changes that are not released yet into those of a version, below a new, empty section."""
    if version in sections(text):
        raise StepError(f"{FILE} has a section for {version} already", "choose the next version")
    heading = f"## [{UNRELEASED}]"
    if heading not in text:
        raise StepError(f"{FILE} has no section {heading}", "add it above the newest version")
    return text.replace(heading, f"{heading}\n\n## [{version}] - {date}", 1)


def mistakes(text: str) -> Iterator[str]:
    """Yield what is not as Keep a Changelog has it."""
    for line in re.findall(r"^## .*$", text, re.MULTILINE):
        if not _HEADING.fullmatch(line):
            yield f"`{line}` is not `## [VERSION] - DATE`"
    for version, (date, body) in sections(text).items():
        if version != UNRELEASED and not (date and _DATE.fullmatch(date)):
            yield f"{version} has no date of the form 2026-01-31"
        kinds = re.findall(r"^### (.*)$", body, re.MULTILINE)
        yield from (f"{version}: `### {kind}` is none of {', '.join(KINDS)}" for kind in kinds if kind not in KINDS)
        if body and not body.startswith("### "):
            yield f"{version}: a change stands above the first kind, such as `### Added`"


def step(arguments: Sequence[str], _env: Mapping[str, str]) -> None:
    """Print the changes of one version."""
    if len(arguments) != 1:
        raise StepError("name one version", "python3 -m release.changelog 1.2.3", status=2)
    show(changes(FILE.read_text(), arguments[0].removeprefix("v")))


if __name__ == "__main__":
    main(step)
