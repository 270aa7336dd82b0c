"""Paths that exist in a job's image only, and `--map IMAGE=HERE`, which names their place on this machine.

Pure: who calls says which paths exist.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pytorchjob_operator.errors import Problem
from pytorchjob_operator.model import PyTorchJob, main_container

Maps = Sequence[tuple[str, str]]
"""A folder of the image, and the folder of this machine that has its content."""

_PROGRAMS = (".py", ".sh")
_FIELD = "spec.pytorchReplicaSpecs.{role}.template.spec.containers[name=pytorch].command"


def read_map(text: str) -> tuple[str, str]:
    """Return the two folders of an option's value; raises ValueError without both."""
    image, _, here = text.partition("=")
    if not image.startswith("/") or not here:
        raise ValueError(f"must be IMAGE=HERE, as /workspace=., got {text!r}")
    return image.rstrip("/") or "/", here


def mapped(text: str, maps: Maps) -> str:
    """Replace the folders of the image wherever a path begins with them, also in a shell's command line."""
    for image, here in maps:
        path = rf"(?<![\w./-]){re.escape(image)}(?=[/\s'\";:&|)]|$)"
        text = re.sub(path, lambda _, here=here: here.rstrip("/") or "/", text)  # type: ignore[misc]
    return text


def problems(job: PyTorchJob, maps: Maps, exists: Callable[[str], bool]) -> list[Problem]:
    """Return a problem for each script that is on no disk of this machine."""
    found = {
        (role, path): Problem(_FIELD.format(role=role), _words(path, exists))
        for role, spec in job.spec.pytorch_replica_specs.items()
        for path in _programs(main_container(spec.template) or {}, maps)
        if not exists(path)
    }
    return list(found.values())


def _programs(main: Mapping[str, Any], maps: Maps) -> Iterator[str]:
    """Yield the absolute paths of scripts; a word after an option may be a file that the job makes."""
    words = [str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ()))]
    for before, word in zip(["", *words], words, strict=False):
        path = mapped(word, maps)
        is_value = before.startswith("--") and before != "--"
        if path.startswith("/") and path.endswith(_PROGRAMS) and not is_value and "$(" not in path:
            yield path


def _words(path: str, exists: Callable[[str], bool]) -> str:
    """Return what is wrong, and the option that mends it: a file of the same name below this folder decides."""
    given = PurePosixPath(path)
    for parent in given.parents:
        if str(parent) != "/" and exists(str(given.relative_to(parent))):
            return f"{path} is not on this machine, but ./{given.relative_to(parent)} is: add --map {parent}=."
    return f"{path} is not on this machine, where no image is used: add --map {given.parent}=FOLDER, its folder here"
