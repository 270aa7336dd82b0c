"""A job that writes down all that each input leads to, in lines that a test compares.

12.5 pod-1 waits for a round            the seconds since the start, and the reason of the decision
  to 1: hold reason=...                 a message, to the replica with this index
  closes 3                              a connection, by its number
  event RoundStarted: ...               an event of the job; `warning` instead of `event` if it is one
  Running round=1.1 ...                 the phase, if it has changed
  restarts=1                            another part of the state, if it has changed
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pytorchjob_agent.contract.messages import HeartbeatReply, RoundId
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.state import Close, Input, JobState, Send
from tests.rounds.story import Job

_SHOWN = (
    "restarts",
    "history",
    "requests",
    "finished_round",
    "next_number",
    "former_uids",
    "silent",
    "problems",
    "refused_at",
    "duplicate_at",
)
_QUIET = ("time passed", "a heartbeat")


class Recorded(Job):
    """A job with a transcript."""

    def __init__(self, replicas: int = 2, min_members: int | None = None, **policy: Any) -> None:
        self.lines: list[str] = []
        super().__init__(replicas, min_members, **policy)
        self.clear()

    def clear(self) -> None:
        """Forget what was written so far."""
        self.lines = []

    def feed(self, event: Input) -> None:
        before, decision = self.state, decide(self.state, event, self.now)
        effects = [*self._commands(decision.commands)]
        effects += [
            f"{'warning' if event.warning else 'event'} {event.reason}: {event.message}" for event in decision.events
        ]
        effects += changes(before, decision.state)
        if effects or decision.reason not in _QUIET:
            self.lines += [f"{self.now - 1000:g} {decision.reason}", *(f"  {effect}" for effect in effects)]
        super().feed(event)

    def _commands(self, commands: tuple[Any, ...]) -> list[str]:
        owner = {link: index for index, link in self.links.items()}
        return [
            f"closes {command.connection}"
            if isinstance(command, Close)
            else f"to {owner.get(command.connection, 'nobody')}: {message(command)}"
            for command in commands
            if not (isinstance(command, Send) and isinstance(command.message, HeartbeatReply))
        ]


def message(command: Send) -> str:
    """Return a message as its kind and its fields."""
    values = json.loads(command.message.to_line())
    return " ".join([values.pop("kind"), *(f"{name}={value}" for name, value in values.items())])


def changes(before: JobState, after: JobState) -> list[str]:
    """Return what of the state is another than before."""
    found = [] if before.phase == after.phase else [shown(after.phase)]
    for name in _SHOWN:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            found.append(f"{name}={shown(new)}")
    return found


def shown(value: Any) -> str:
    """Return a value without the fields that have their defaults, and times relative to the start."""
    if isinstance(value, RoundId):
        return str(value)
    if isinstance(value, float):
        return f"{value - 1000 if value >= 1000 else value:g}"
    if is_dataclass(value):
        given = {
            each.name: getattr(value, each.name) for each in fields(value) if getattr(value, each.name) != each.default
        }
        values = [f"{name}={shown(found)}" for name, found in given.items() if found not in ("", (), {}, frozenset())]
        return f"{type(value).__name__}({', '.join(values)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{shown(name)}: {shown(found)}' for name, found in value.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return str(value)


def round_of_two(**policy: Any) -> Recorded:
    """A job of two that runs in its first round; its transcript begins here."""
    job = Recorded(2, **policy)
    job.waits(0, 1)
    job.clear()
    return job


def new_leader(replicas: int, min_members: int | None = None, **policy: Any) -> Recorded:
    """A job that a leader in its second term knows nothing of."""
    job = Recorded(replicas, min_members, **policy)
    job.state = JobState(job.policy, term=2)
    job.expect()
    job.clear()
    return job
