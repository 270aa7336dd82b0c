"""Make the release of a tag on GitHub: its changes as text; chart, manifests, package, lists of software as files."""

import hashlib
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from release import changelog, files, package, sbom, version
from release.common import OUT, RECORD, StepError, main, read_record, run, show, succeeds, write

SUMS = OUT / "SHA256SUMS"
NOTES = OUT / "notes.md"
EXAMPLES = OUT / "examples.tar.gz"


def assets() -> list[Path]:
    """Return the files of the release; `StepError` names the step that was left out."""
    record = read_record()
    if "chart" not in record:
        raise StepError("the chart was not pushed", "run `make release-chart`")
    built = sorted(package.FOLDER.glob("*"))
    if not built:
        raise StepError("the Python package was not built", "run `make package`")
    with tarfile.open(EXAMPLES, "w:gz") as archive:
        archive.add(files.EXAMPLES, "examples")
    found = [
        RECORD,
        Path(record["chart"]["archive"]),
        files.INSTALL,
        EXAMPLES,
        *built,
        *sorted(sbom.FOLDER.glob("*.json")),
    ]
    return [path for path in found if path.is_file()]


def sums(paths: Sequence[Path]) -> str:
    """Return the files' checksums, as `sha256sum --check` reads them."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)


def notes(changes: str, record: Mapping[str, Any]) -> str:
    """Return the text of the release: its changes, then the digests."""
    references = [image["reference"] for image in (*record["images"].values(), record["chart"])]
    digests = "\n".join(f"- `{reference}`" for reference in references)
    return f"{changes}\n\n### Images and chart, by digest\n\n{digests}\n"


def step(_arguments: Sequence[str], _env: Mapping[str, str]) -> None:
    """Create the release, or renew the files of an existing release."""
    number = version.current()
    tag = f"v{number}"
    found = assets()
    write(SUMS, sums(found))
    text = notes(changelog.changes(changelog.FILE.read_text(), number), read_record())
    write(NOTES, text)
    paths = [str(path) for path in (*found, SUMS)]
    if succeeds("gh", "release", "view", tag):
        run("gh", "release", "edit", tag, "--notes-file", str(NOTES))
        run("gh", "release", "upload", tag, "--clobber", *paths)
    else:
        early = ["--prerelease"] if "-" in number else []
        run(
            "gh",
            "release",
            "create",
            tag,
            "--verify-tag",
            "--title",
            number,
            "--notes-file",
            str(NOTES),
            *early,
            *paths,
        )
    show(f"publish: release {tag} has {len(paths)} files")


if __name__ == "__main__":
    main(step)
