"""Reads how the workers of a replica have ended, as the agent's hook in them has noted it (`contract/noted_end`)."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.contract.noted_end import ENDS, MOST, SUFFIX, NotedEnd


def begin(env: Mapping[str, str]) -> None:
    """Make an empty folder for the notes of a replica that starts."""
    if folder := env.get(ENDS):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, exist_ok=True)


def read(env: Mapping[str, str]) -> Iterator[tuple[int, NotedEnd]]:
    """Yield the ranks of a replica that have noted their ends, with what they have noted."""
    for path in sorted(Path(folder).glob(f"*{SUFFIX}.*[0-9]")) if (folder := env.get(ENDS)) else ():
        rank = path.name.partition(".")[0]
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            noted = NotedEnd.from_json(file.read(MOST))
            if rank.isdecimal() and noted.at:
                yield int(rank), noted
