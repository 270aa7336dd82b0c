"""What is started for one replica: a value, made by `translate`, run by `keeper`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, the whole of its environment, and its directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
