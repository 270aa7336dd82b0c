"""The smallest value that a store takes."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    uid: str
    resource_version: int
    owner_uid: str | None = "job"
    namespace: str = "default"

    @classmethod
    def decode(cls, obj: dict[str, Any]) -> "Item":
        meta = obj["metadata"]
        owner = meta.get("labels", {}).get("job", "job")
        return cls(meta["name"], meta["uid"], int(meta["resourceVersion"]), owner, meta["namespace"])
