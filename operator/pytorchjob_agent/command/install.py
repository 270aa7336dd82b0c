"""`pytorchjob-agent install DIR`: copies this package, with its entry points for Lightning, to where Python finds it.

It needs neither torch nor pip. An equal copy is kept. A different one is replaced as a whole, so that a reader finds
either the old package or the new one.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pytorchjob_agent import __version__
from pytorchjob_agent.contract.coordinator_endpoint import BACKEND
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.system.console import say

_HERE = Path(__file__).parents[1]
_DISTRIBUTION = "pytorchjob"  # an image may have it under the same name: Python then uses only the first one
_INFO = f"{_DISTRIBUTION}-{__version__}.dist-info"
_METADATA = f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {__version__}\n"
_ENTRY_POINTS = {
    "lightning.pytorch.callbacks_factory": "script.lightning:callbacks",
    "pytorch_lightning.callbacks_factory": "script.lightning:callbacks",
}
"""By group; `pyproject.toml` has the same for the package that pip installs."""


def main(arguments: list[str]) -> int:
    """Parse the arguments of `install`, copy, and print the result; returns the exit code."""
    parser = argparse.ArgumentParser("pytorchjob-agent install", description="Copy the agent into a folder.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="a folder that is then put into PYTHONPATH")
    directory = parser.parse_args(arguments).directory
    try:
        changed = install(directory)
    except OSError as error:
        say(f"install: {directory}: {error}: mount a volume there that this user may write to")
        return ExitCode.SETUP
    print(f"pytorchjob-agent {__version__} {'is now in' if changed else 'was already in'} {directory}")
    return ExitCode.OK


def install(directory: Path) -> bool:
    """Put this package and its entry points into the folder; return whether anything was written."""
    wanted = _wanted()
    if _held_tops(directory) == _tops(wanted) and _held(directory) == wanted:
        return False
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".new-", dir=directory) as new:
        _write(Path(new), wanted)
        for name in _tops(wanted):
            _swap(Path(new) / name, directory / name)
        for left in _held_tops(directory) - _tops(wanted):
            (directory / left).rename(Path(new) / f"old-{left}")
    return True


def _wanted() -> dict[str, bytes]:
    """Return every file by its path, without compiled files, which fit one version of Python only."""
    package = {f"{_HERE.name}/{path.relative_to(_HERE)}": path.read_bytes() for path in _HERE.rglob("*.py")}
    groups = (f"[{group}]\n{BACKEND} = {_HERE.name}.{place}\n" for group, place in _ENTRY_POINTS.items())
    return {**package, f"{_INFO}/METADATA": _METADATA.encode(), f"{_INFO}/entry_points.txt": "".join(groups).encode()}


def _held(directory: Path) -> dict[str, bytes]:
    """Return the agent's files that the folder has already."""
    files = (path for top in _held_tops(directory) for path in (directory / top).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files if path.suffix != ".pyc"}


def _held_tops(directory: Path) -> set[str]:
    named = (directory / _HERE.name, *directory.glob(f"{_DISTRIBUTION}-*.dist-info"))
    return {path.name for path in named if path.is_dir()}


def _tops(files: Mapping[str, bytes]) -> set[str]:
    return {name.partition("/")[0] for name in files}


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files that every user may read, whatever the writer's umask is."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o644)
    for path in directory.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def _swap(new: Path, place: Path) -> None:
    if place.exists():
        place.rename(new.with_name(f"old-{new.name}"))
    new.rename(place)
