"""The version is written once, in the package's source; this step writes it where other formats need it repeated.

`python3 -m release.version` writes the copies and prints the version. With a new version as argument it changes the
source too, and dates the changes that are not released yet.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from release.changelog import FILE as CHANGELOG
from release.changelog import dated
from release.common import StepError, main, show

SOURCE = Path("operator/pytorchjob_agent/__init__.py")
_SOURCE = re.compile(r'^(__version__ = ")([^"]+)(")$', re.MULTILINE)
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-rc\.(0|[1-9]\d*))?")


@dataclass(frozen=True)
class Place:
    """A file that repeats the version; the pattern's middle group is the version."""

    path: Path
    pattern: str

    def read(self) -> list[str]:
        """Return every version that the file has here."""
        return [found[2] for found in re.finditer(self.pattern, self.path.read_text(), re.MULTILINE)]

    def write(self, version: str) -> None:
        """Put the version in."""
        text = self.path.read_text()
        self.path.write_text(re.sub(self.pattern, rf"\g<1>{version}\g<3>", text, flags=re.MULTILINE))


COPIES = (
    Place(Path("charts/pytorchjob-operator/Chart.yaml"), r'^((?:version|appVersion): "?)([^"\n]+)("?)$'),
    Place(Path("manifests/image/kustomization.yaml"), r'^( +newTag: "?)([^"\n]+)("?)$'),
    Place(Path("docs/installing.md"), r"^(version=)(\S+)()$"),
)


def current() -> str:
    """Return the version of this checkout."""
    found = _SOURCE.search(SOURCE.read_text())
    if found is None:
        raise StepError(f"{SOURCE} has no line `__version__ = ...`")
    return found[2]


def parsed(version: str) -> str:
    """Return a version without the `v` of a tag; `StepError` if it is not three numbers, with or without `-rc.1`."""
    plain = version.removeprefix("v")
    if not _VERSION.fullmatch(plain):
        raise StepError(f"{version!r} is not a version", "give three numbers, as VERSION=1.2.3 or 1.2.3-rc.1", status=2)
    return plain


def write_copies(version: str) -> None:
    """Write the version into every copy."""
    for place in COPIES:
        place.write(version)


def begin(version: str, date: str) -> None:
    """Make the source and the changelog those of a new version."""
    SOURCE.write_text(_SOURCE.sub(rf"\g<1>{version}\g<3>", SOURCE.read_text()))
    CHANGELOG.write_text(dated(CHANGELOG.read_text(), version, date))


def step(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Write the copies; with an argument, begin that version."""
    if arguments and arguments[0]:
        begin(parsed(arguments[0]), env.get("DATE") or time.strftime("%Y-%m-%d", time.gmtime()))
    write_copies(current())
    show(current())


if __name__ == "__main__":
    main(step)
