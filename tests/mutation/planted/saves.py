"""Defects of checkpoints: in memory, on durable storage, and guarded."""

from collections.abc import Sequence

from tests.mutation.planted import Planted

SAVES = "pytorchjob_agent/saves"

DEFECTS: Sequence[Planted] = [
    Planted(
        "a peer sends another save than asked",
        "a reader: no test noticed it",
        f"{SAVES}/copies.py",
        "if manifest.id.owner != owner or not choice.includes(manifest.held()):",
        "if False:",
        ("tests/agent/saves/test_copies.py",),
    ),
]
