"""Where a pod keeps the caches of compilers and libraries (spec.agent.caches). Pure.

The operator writes it as JSON into one variable, and the agent reads it here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pytorchjob_agent.contract.reading import ObjectReader

CACHES = "PYTORCHJOB_CACHES"
_LONGEST_IMAGE = 4096


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The directory of the caches of a pod."""

    directory: str
    """Absolute path."""
    image: str = ""
    """The name of the container's image as the job has it: pods of other images exchange no caches with this one."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Read the variable; None without it. Raises ContractError."""
        return cls.from_json(env[CACHES]) if env.get(CACHES) else None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        fields = ObjectReader.parse(CACHES, text)
        directory = fields.directory("directory")
        return cls(directory, fields.short_text("image", _LONGEST_IMAGE) or "")

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        data = {"directory": self.directory, "image": self.image or None}
        return json.dumps({name: value for name, value in data.items() if value}, separators=(",", ":"))
