"""The heartbeat of an agent: that it lives, and what its workers show. Pure; `messages` has all messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from .fields import RoundId, a_flag, a_number, a_round, a_text, an_int, maybe_int, some_ints, some_numbers
from .message import Message


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """The agent lives; and the progress of its workers. The coordinator answers one in HEARTBEAT_REPLY_SECONDS."""

    kind: ClassVar[str] = "heartbeat"
    step: int | None = maybe_int(default=None)
    total: int | None = maybe_int(default=None)
    metrics: Mapping[str, float] = some_numbers(default_factory=dict)
    heard: tuple[int, ...] = some_ints(default=())
    """Ranks of the round `heard_in` that the agent has heard lately through the round's store."""
    heard_ages: tuple[int, ...] = some_ints(default=())
    """For each rank in `heard`, how old the sign of life is at most: tenths of a second, rounded up."""
    heard_in: RoundId | None = a_round(optional=True, default=None)
    """The round of these ranks: the last one while the agent waits. None: nothing is heard."""
    cooperative: bool = a_flag(default=False)
    """True if the workers poll for checkpoint requests: then the coordinator waits for a checkpoint."""
    answered: int = an_int(0, default=0)
    """The number of the last checkpoint request that all workers of this agent have answered."""
    shown_step: int | None = maybe_int(default=None)
    """Steps of a script that does not call progress(), as the agent observes them. People see them, and `metrics` is
    of the same source; no decision uses them."""
    shown_total: int | None = maybe_int(default=None)
    percent: int | None = maybe_int(100, default=None)
    """How much of the training is done, if the script shows it itself. None: it follows from the steps."""
    remaining: int | None = maybe_int(default=None)
    """Seconds until the end. None: unknown."""
    rate: float = a_number(default=0.0)
    """Steps per second in this round. 0: unknown."""
    saves_on_request: bool = a_flag(default=False)
    """True if the workers poll for requests to save."""
    checkpoint_problem: str = a_text(512, default="")
    """Why the last checkpoint is not in memory, or not copied. Empty: no problem, or an agent without checkpoints."""
    workers_age: float = a_number(default=-1.0)
    """Seconds since the workers of this round were started. Negative: they are not."""
    first_step: int | None = maybe_int(default=None)
    """The first step that its furthest worker reported in this round. None: unknown."""
    first_age: float = a_number(default=0.0)
    """Seconds since that report."""
    step_age: float = a_number(default=0.0)
    """Seconds since it reported `step`."""
    shrinks: str = a_text(32, default="")
    """A `ShrinkState`: whether the workers here go on without a lost member. Empty: the agent does not know."""
    shares_state: bool = a_flag(default=False)
    """True if the workers here can take in a rank that comes back, and give it their state."""
    entered: int = an_int(0, default=0)
    """The last change by which a rank has come into the group of the workers here, or they themselves."""
    saves: int | None = maybe_int(default=None)
    """Saves that the script made by itself in this round. None: not observed, so it may have made some."""
    save_seconds: float = a_number(default=0.0)
    """Seconds in these saves, of the worker with the longest ones."""
    saved_step: int | None = maybe_int(default=None)
    """Steps done at the last of them. None: unknown."""
    load_seconds: float = a_number(default=0.0)
    """Seconds in which the script loaded checkpoints before its first step."""
    own_windows: tuple[int, ...] = some_ints(default=())
    """For each worker, by local rank: how many windows of its own time it has measured in this round."""
    own_shares: tuple[int, ...] = some_ints(default=())
    """For each worker: the part of its last window that it spent outside collectives, in thousandths."""
    own_places: Mapping[str, float] = some_numbers(default_factory=dict)
    """Where workers work: local rank and line of the script, with its part of the last window in thousandths."""
