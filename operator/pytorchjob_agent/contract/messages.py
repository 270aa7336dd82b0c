"""What agents and the coordinator say to each other: one JSON object a line, each checked before it is believed.

Pure, and shared by both sides. Unknown fields are left alone, so that a newer peer may say more; a field that is
missing or wrong ends the conversation. Nothing is unbounded: a line has a limit, and so has every text and list in it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from pytorchjob_agent.contract.fields import (
    MAX_MEMBERS,
    a_flag,
    a_number,
    a_round,
    a_text,
    an_int,
    maybe_int,
    some_ints,
    some_numbers,
    some_texts,
)
from pytorchjob_agent.contract.fields import ProtocolError as ProtocolError
from pytorchjob_agent.contract.fields import RoundId as RoundId

VERSION = 1
LINE_LIMIT = 64 * 1024
"""Bytes of one message with its newline."""
BEAT_SECONDS = 1.0
PONG_SECONDS = 1.5
"""Of an agent's beats, only one in so long is answered: it has to hear of us within its lease, not each second."""
LEASE_SECONDS = 5.0
"""Who has not been heard of for so long is gone, unless its peers hear it."""
TAIL_LIMIT = 16 * 1024
UNTOLD = "workers failed here (torchrun does not say why; see the log)"
"""What is told of a failure whose cause the agent cannot know."""


_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class Message:
    """The base of all messages; `kind` names each on the wire."""

    kind: ClassVar[str]

    def to_line(self) -> bytes:
        """Return one line of JSON with its newline."""
        said: dict[str, Any] = {"kind": self.kind}
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            said[one.name] = [value.epoch, value.number, value.again] if isinstance(value, RoundId) else value
        return _encode(said).encode() + b"\n"

    @classmethod
    def from_object(cls, said: Mapping[str, Any]) -> Self:
        """Read the fields, each by its own check; raises ProtocolError."""
        found = {}
        for one in fields(cls):  # type: ignore[arg-type]
            if one.name in said:
                found[one.name] = _field(cls.kind, one, said[one.name])
        try:
            return cls(**found)
        except TypeError as error:
            raise ProtocolError(f"{cls.kind}: {error}") from None


def _field(kind: str, one: Any, value: Any) -> Any:
    if not one.metadata["check"](value):
        raise ProtocolError(f"{kind}: {one.name}: {str(value)[:80]!r} is not {one.metadata['form']}")
    read = one.metadata.get("read")
    return read(value) if read else value


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """An agent introduces itself; first on every connection."""

    kind: ClassVar[str] = "hello"
    job: str = a_text(128)
    pod: str = a_text(253)
    token: str = a_text(128)
    index: int = an_int(0, MAX_MEMBERS)
    address: str = a_text(64)
    """Where its store can be reached: an IP."""
    nproc: int = an_int(1, 4096)
    incarnation: str = a_text(64)
    """Another one for each start of the agent, the same for each connection of one."""
    pod_uid: str = a_text(128, default="")
    round: RoundId | None = a_round(optional=True, default=None)
    """The round in which its workers run now, for a coordinator that does not remember; None: none."""
    rank: int = an_int(0, MAX_MEMBERS, default=0)
    size: int = an_int(0, MAX_MEMBERS, default=0)
    restarts: int = an_int(0, default=0)
    done: bool = a_flag(default=False)
    versions: Mapping[str, str | None] = some_texts(default_factory=dict)
    warnings: bool = a_flag(default=True)
    """False: unequal versions end the job instead of being told."""
    clock: float = a_number(default=0.0)
    """Wall time of the pod as this is sent, in seconds; 0: not told."""
    version: int = an_int(1, 1000, default=VERSION)


@dataclass(frozen=True, slots=True)
class Join(Message):
    """The agent has no workers and wants into the next round; its store's port is open."""

    kind: ClassVar[str] = "join"
    port: int = an_int(1, 65535)
    round: RoundId | None = a_round(optional=True, default=None)
    """The last round that it took part in, or was told is over: it begins none up to this one any more."""


@dataclass(frozen=True, slots=True)
class Beat(Message):
    """Still here; and how far the workers have come. The coordinator answers each with one of its own."""

    kind: ClassVar[str] = "beat"
    step: int | None = maybe_int(default=None)
    total: int | None = maybe_int(default=None)
    metrics: Mapping[str, float] = some_numbers(default_factory=dict)
    heard: tuple[int, ...] = some_ints(default=())
    """Ranks of this round whose agents were heard through the round's store since the last beat."""
    cooperative: bool = a_flag(default=False)
    """Whether the workers ask for checkpoint requests: then one is worth waiting for."""
    answered: int = an_int(0, default=0)
    """The number of the last checkpoint request that every worker here has answered."""


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """Workers of a round failed here; before the join that follows."""

    kind: ClassVar[str] = "failed"
    round: RoundId = a_round()
    rank: int = an_int(0)
    local_rank: int = an_int(0)
    exit_code: int = an_int(0, 255)
    message: str = a_text(4096)
    traceback: str = a_text(TAIL_LIMIT, default="")
    also: tuple[int, ...] = some_ints(default=())
    """Ranks here that failed after it."""
    hang: bool = a_flag(default=False)
    """Whether they live but do nothing more."""
    waits: bool = a_flag(default=False)
    """Of a hang: whether the rank waits for others in a collective, and so is not the cause."""
    age: float = a_number(default=0.0)
    """Seconds since the failure, as far as the agent knows."""


@dataclass(frozen=True, slots=True)
class Done(Message):
    """All workers here ended well."""

    kind: ClassVar[str] = "done"
    round: RoundId = a_round()


@dataclass(frozen=True, slots=True)
class Resumed(Message):
    """The members agreed on a round without the coordinator, and its workers run."""

    kind: ClassVar[str] = "resumed"
    round: RoundId = a_round()
    restarts: int = an_int(0)
    reason: str = a_text(1024, default="")


@dataclass(frozen=True, slots=True)
class Draining(Message):
    """This pod was asked to go and has so many seconds left."""

    kind: ClassVar[str] = "draining"
    seconds: float = a_number()
    reason: str = a_text(256, default="")


@dataclass(frozen=True, slots=True)
class Unreachable(Message):
    """A peer's port did not answer."""

    kind: ClassVar[str] = "unreachable"
    round: RoundId = a_round()
    peer: str = a_text(128)
    error: str = a_text(512)


@dataclass(frozen=True, slots=True)
class Welcome(Message):
    """The coordinator has accepted a hello."""

    kind: ClassVar[str] = "welcome"
    epoch: int = an_int(0)


@dataclass(frozen=True, slots=True)
class Refused(Message):
    """The coordinator has not, and closes; `again` tells whether another attempt may go better."""

    kind: ClassVar[str] = "refused"
    message: str = a_text(1024)
    again: bool = a_flag(default=False)
    fenced: bool = a_flag(default=False)
    """Another incarnation has this place."""


@dataclass(frozen=True, slots=True)
class Assigned(Message):
    """A round: who the agent is in it, and where its rank 0 keeps the store."""

    kind: ClassVar[str] = "assigned"
    round: RoundId = a_round()
    rank: int = an_int(0)
    size: int = an_int(1)
    first_rank: int = an_int(0)
    """Rank of this agent's first worker."""
    world_size: int = an_int(1)
    master_address: str = a_text(64)
    master_port: int = an_int(1, 65535)
    restarts: int = an_int(0)
    """How often workers have failed in this job so far: the same number for everybody."""
    neighbour: str = a_text(128, default="")
    """host:port of a peer to try, so that a closed network is noticed at once; empty: none."""
    reason: str = a_text(1024, default="")


@dataclass(frozen=True, slots=True)
class Restart(Message):
    """Kill the workers of this round, or of an older one, and join anew."""

    kind: ClassVar[str] = "restart"
    round: RoundId = a_round()
    reason: str = a_text(1024, default="")
    dump: bool = a_flag(default=False)
    """Print the workers' stacks before, and tell where they are."""


@dataclass(frozen=True, slots=True)
class Checkpoint(Message):
    """Ask the workers for a checkpoint; `number` grows with each request of a round."""

    kind: ClassVar[str] = "checkpoint"
    round: RoundId = a_round()
    number: int = an_int(1)
    seconds: float = a_number()
    reason: str = a_text(1024, default="")


@dataclass(frozen=True, slots=True)
class Hold(Message):
    """Nothing to do but wait, and for what."""

    kind: ClassVar[str] = "hold"
    reason: str = a_text(1024)


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """End: kill the workers and exit with this code, or with the one of the workers that failed here."""

    kind: ClassVar[str] = "stop"
    exit_code: int = an_int(0, 255)
    reason: str = a_text(64)
    message: str = a_text(4096)


@dataclass(frozen=True, slots=True)
class Finished(Message):
    """Every member of the round is done: exit with success."""

    kind: ClassVar[str] = "finished"
    round: RoundId = a_round()


@dataclass(frozen=True, slots=True)
class Pong(Message):
    """The answer to a beat, to every second one: the coordinator is there."""

    kind: ClassVar[str] = "pong"

    def to_line(self) -> bytes:
        """Return what is always the same, a thousand times a second in a large job."""
        return _PONG


FromAgent = Hello | Join | Beat | Failed | Done | Resumed | Draining | Unreachable
ToAgent = Welcome | Refused | Assigned | Restart | Checkpoint | Hold | Stop | Finished | Pong

_PONG = b'{"kind":"pong"}\n'
_FROM_AGENT: dict[str, type[Any]] = {
    one.kind: one for one in (Hello, Join, Beat, Failed, Done, Resumed, Draining, Unreachable)
}
_TO_AGENT: dict[str, type[Any]] = {
    one.kind: one for one in (Welcome, Refused, Assigned, Restart, Checkpoint, Hold, Stop, Finished, Pong)
}


def read_from_agent(line: bytes) -> FromAgent:
    """Read what an agent said; raises ProtocolError."""
    message: FromAgent = _read(line, _FROM_AGENT)
    return message


def read_to_agent(line: bytes) -> ToAgent:
    """Read what the coordinator said; raises ProtocolError."""
    message: ToAgent = _read(line, _TO_AGENT)
    return message


def _read(line: bytes, known: Mapping[str, type[Any]]) -> Any:
    if len(line) > LINE_LIMIT:
        raise ProtocolError(f"a message of {len(line)} bytes: expected at most {LINE_LIMIT}")
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{line[:80]!r} is not JSON: {str(error)[:120]}") from None
    kind = said.get("kind") if isinstance(said, dict) else None
    found = known.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise ProtocolError(f"kind: {str(kind)[:80]!r} is none of {', '.join(sorted(known))}")
    return found.from_object(said)


def as_dict(message: Message) -> dict[str, Any]:
    """Return a message as plain data, for logs and tests."""
    return {"kind": message.kind, **asdict(message)}  # type: ignore[call-overload]
