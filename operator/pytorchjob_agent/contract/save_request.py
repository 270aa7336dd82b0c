"""The request to save while training continues. `messages` has the other messages."""

from dataclasses import dataclass
from typing import ClassVar

from .fields import RoundId, a_number, a_round, a_text, an_int
from .message import Message


@dataclass(frozen=True, slots=True)
class Save(Message):
    """Ask the workers for a checkpoint while training continues. `number` is of the same series as in `Checkpoint`.

    Only agents whose heartbeats have `saves_on_request` receive it.
    """

    kind: ClassVar[str] = "save"
    round: RoundId = a_round()
    number: int = an_int(1)
    seconds: float = a_number()
    reason: str = a_text(1024, default="")
