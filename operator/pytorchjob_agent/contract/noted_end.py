"""What the hook in a worker (`workers/startup/pytorchjob_ending`) notes of the end of its program. Pure."""

from dataclasses import dataclass
from typing import Self

from .reading import ContractError, ObjectReader
from .root_cause import Evidence

# The hook imports nothing of the agent, so it has these names too; a test compares them.
ENDS = "PYTORCHJOB_ENDS"
"""The variable with a folder for the notes, where no agent starts the workers."""
SUFFIX = ".uncaught"
"""What follows in the name of a note on the rank, or on the path of torch's error file; the pid ends it."""
MOST = 256 * 1024
"""Characters of a note that are read."""
_UNCAUGHT = 1
_BROKEN_DEVICES = frozenset({46, 100, 214, 220, 226, 802, 803, 999})
"""Numbers of CUDA's errors that a node's devices have, not a program: devices unavailable, no device, uncorrectable ECC
error of memory and of NVLink, an error contained in the device, system not ready, driver mismatch, and unknown, which
a device that is gone returns. HIP has the same numbers for those that it knows."""


@dataclass(frozen=True, slots=True)
class NotedEnd:
    """How a worker's program has ended: by an error that has left it, or with a code."""

    at: float = 0.0
    """The wall clock's time; 0 if nothing is noted."""
    errors: tuple[str, ...] = ()
    raised_in: str = ""
    message: str = ""
    traceback: str = ""
    monotonic: float = 0.0
    """The same time by the machine's monotonic clock."""
    device_error: int = 0
    """CUDA's or HIP's number of the error; 0: none."""
    code: int | None = None
    """None after an error, or if nothing is noted."""

    def evidence(self, rank: int) -> Evidence:
        """Return what decides whether this end caused others, in monotonic seconds."""
        code = _UNCAUGHT if self.code is None else self.code
        return Evidence(self.monotonic, rank, code, self.errors, self.raised_in, early=code == 0)

    @property
    def broken_device(self) -> bool:
        """Return whether the program ended because of a device that is broken, so that this node is no place for it."""
        return self.device_error in _BROKEN_DEVICES

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what the hook wrote; nothing is noted if it makes no sense."""
        try:
            fields = ObjectReader.parse("the worker's end", text)
            return cls(
                at=fields.number("at", 0.0, 1e12, "a time") or 0.0,
                errors=tuple(str(name) for name in fields.items("errors")),
                raised_in=fields.text("raised_in"),
                device_error=fields.whole("device_error") or 0,
                message=fields.text("message"),
                traceback=fields.text("traceback"),
                monotonic=fields.number("monotonic", 0.0, 1e12, "a time") or 0.0,
                code=fields.whole("code"),
            )
        except ContractError:
            return cls()
