"""What one member tells of itself, for whoever compares the members of a job. Pure; part of the contract."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class MemberReport:
    """Versions by name (python, torch, cuda, nccl; None: there is none) and what the checks found."""

    versions: Mapping[str, str | None]
    clock: str  # of the wall, for people: nothing may depend on it
    findings: tuple[Mapping[str, str], ...]
    version: int = 1

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)
