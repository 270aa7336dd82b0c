"""The settings of spec.agent.checkpoint: where the script saves, what memory and durable storage keep. Pure.

The operator writes them as JSON into one variable, and the agent reads it here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pytorchjob_agent.contract.reading import ContractError, ObjectReader

FENCE_FOLDER = ".pytorchjob-fence"
"""The folder beside guarded checkpoints (`checkpoint/fence`)."""
CHECKPOINT = "PYTORCHJOB_CHECKPOINT"
_MARKER = re.compile(r"__(\d+)_(\d+)\.whole")
DEFAULT_COPIES, MOST_COPIES = 1, 3
DEFAULT_COPY_RATE = 200_000_000
"""Bytes per second that a pod sends to other pods, or to durable storage, while its workers train."""
DEFAULT_INTERVAL, LONGEST_INTERVAL = 600, 30 * 86_400
"""Seconds between two copies to the durable directory."""
_MOST_BYTES = 2**50


@dataclass(frozen=True, slots=True)
class DurableRules:
    """The directory on durable storage."""

    directory: str
    """Absolute path; no part of the directory in memory, and not above it."""
    interval: int = DEFAULT_INTERVAL
    """Seconds from the start of one copy to the start of the next."""

    def to_object(self) -> dict[str, str | int]:
        """Return the object that `from_object` reads."""
        return {"directory": self.directory, "intervalSeconds": self.interval}

    @classmethod
    def from_object(cls, data: object, memory: str) -> Self:
        """Read what `to_object` wrote; `memory` is the directory in memory. Raises ContractError."""
        where = f"{CHECKPOINT}: durable"
        fields = ObjectReader(where, data)
        directory = fields.directory("directory")
        if overlaps(directory, memory):
            raise ContractError(f"{where}: directory: {directory} overlaps {memory}, which is memory")
        interval = fields.number("intervalSeconds", 1, LONGEST_INTERVAL, "a number of seconds")
        return cls(directory, DEFAULT_INTERVAL if interval is None else int(interval))


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """The directory of a job's checkpoints and its copies."""

    directory: str
    """Absolute path below which the script saves."""
    memory: int
    """Bytes that the directory may use, with the copies of other members' saves."""
    copies: int = DEFAULT_COPIES
    """How many other members keep a copy of each save. 0: none."""
    durable: DurableRules | None = None
    """Where the newest save goes now and then. None: memory alone keeps the saves."""
    copy_rate: int = DEFAULT_COPY_RATE
    """Bytes per second of the copies to other members while workers train, and of those to durable storage."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Read the variable; None without it. Raises ContractError."""
        return cls.from_json(env[CHECKPOINT]) if env.get(CHECKPOINT) else None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        fields = ObjectReader.parse(CHECKPOINT, text)
        directory = fields.directory("directory")
        memory = fields.number("memory", 1, _MOST_BYTES, "a number of bytes")
        if memory is None:
            raise ContractError(f"{CHECKPOINT}: memory: expected a number of bytes")
        copies = fields.number("copies", 0, MOST_COPIES, f"a number from 0 to {MOST_COPIES}")
        rate = fields.number("copyRate", 1, _MOST_BYTES, "a number of bytes per second")
        found = fields.value("durable")
        durable = None if found is None else DurableRules.from_object(found, directory)
        return cls(
            directory,
            int(memory),
            DEFAULT_COPIES if copies is None else int(copies),
            durable,
            DEFAULT_COPY_RATE if rate is None else int(rate),
        )

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        data: dict[str, object] = {"directory": self.directory, "memory": self.memory, "copies": self.copies}
        if self.copy_rate != DEFAULT_COPY_RATE:
            data["copyRate"] = self.copy_rate
        if self.durable is not None:
            data["durable"] = self.durable.to_object()
        return json.dumps(data, separators=(",", ":"))


def marker_of(rank: int, files: int) -> str:
    """Return the name of the file by which a rank marks its part of a checkpoint as whole; `files`: how many it has."""
    return f"__{rank}_{files}.whole"


def read_marker(name: str) -> tuple[int, int] | None:
    """Return whose marker a file is, and how many files that rank has written; None for any other file."""
    found = _MARKER.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def overlaps(path: str, other: str) -> bool:
    """Return whether two directories are the same, or whether either contains the other."""
    first, second = path.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)
