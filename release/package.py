"""Build the Python package, as wheel and as source archive, with hatchling of the interpreter that runs this."""

import shutil
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from release import version
from release.common import OUT, StepError, main, run, show

FOLDER = OUT / "python"
PACKAGES = ("pytorchjob", "pytorchjob_agent", "pytorchjob_operator")
NEEDED = ("pytorchjob_operator/crd/pod_template.json", "pytorchjob/cli.py", "pytorchjob_agent/__main__.py")


def contents(archive: Path) -> list[str]:
    """Return the names of the files in a wheel or a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as source:
        return source.getnames()


def python_version(number: str) -> str:
    """Return a version as Python's archives have it: 1.2.3rc1 for 1.2.3-rc.1."""
    return number.replace("-rc.", "rc")


def missing(wheel: list[str]) -> list[str]:
    """Return what a wheel should have and has not."""
    licence = [name for name in wheel if name.endswith("/LICENSE")]
    return [name for name in NEEDED if name not in wheel] + ([] if licence else ["LICENSE"])


def surplus(wheel: list[str]) -> list[str]:
    """Return what a wheel has and should not have: anything beside the packages and their description."""
    return [name for name in wheel if name.partition("/")[0] not in PACKAGES and ".dist-info/" not in name]


def step(_arguments: Sequence[str], _env: Mapping[str, str]) -> None:
    """Build both archives into out/release/python, and check what is in them."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(FOLDER.absolute()))
    number = version.current()
    (wheel,), (source,) = FOLDER.glob("*.whl"), FOLDER.glob("*.tar.gz")
    for archive in (wheel, source):
        if not archive.name.startswith(f"pytorchjob-{python_version(number)}"):
            raise StepError(f"{archive.name} is not version {number}", "run `make release-version`")
    lacks, more = missing(contents(wheel)), surplus(contents(wheel))
    if lacks or more:
        raise StepError(
            f"{wheel.name} lacks {lacks or 'nothing'} and has {more or 'nothing'} too much",
            "correct [tool.hatch.build] in pyproject.toml",
        )
    for archive in (source, wheel):
        show(f"package: {archive} ({archive.stat().st_size // 1024} KiB)")


if __name__ == "__main__":
    main(step)
