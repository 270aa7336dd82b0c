"""What agents and the coordinator send each other: one JSON object per line, and each field is checked.

Pure, and shared by both sides. A reader ignores unknown fields, so that a newer peer may send more. A missing or wrong
field ends the conversation. A line has a limit, and so has every text and list in it: `to_line` keeps to the limits.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .collectives import GroupPosition, some_positions
from .fields import (
    MAX_MEMBERS,
    a_flag,
    a_number,
    a_round,
    a_text,
    an_int,
    some_ints,
    some_names,
    some_texts,
)
from .fields import ProtocolError as ProtocolError
from .fields import RoundId as RoundId
from .heartbeat import Heartbeat as Heartbeat
from .message import HELLO_LIMIT as HELLO_LIMIT
from .message import LINE_LIMIT as LINE_LIMIT
from .message import Message as Message
from .save_request import Save as Save

VERSION = 1
HEARTBEAT_SECONDS = 1.0
"""An agent sends a heartbeat this often."""
HEARTBEAT_REPLY_SECONDS = 1.5
"""The coordinator answers at most one heartbeat of an agent in this time: the agent needs one answer per lease."""
LEASE_SECONDS = 5.0
"""An agent that is silent for this long is lost, unless its peers hear it."""
TOKEN_LIMIT = 8 * 1024
"""Characters of a credential: a service account token has about 1,100, and long names or keys add to them."""
TRACEBACK_LIMIT = 16 * 1024
"""Characters of a traceback; the end is kept."""


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """An agent introduces itself. This is the first message on every connection."""

    kind: ClassVar[str] = "hello"
    line_limit: ClassVar[int] = HELLO_LIMIT
    job: str = a_text(128)
    pod: str = a_text(253)
    token: str = a_text(TOKEN_LIMIT)
    index: int = an_int(0, MAX_MEMBERS)
    address: str = a_text(64)
    """The IP address at which peers reach its store."""
    nproc: int = an_int(1, 4096)
    incarnation: str = a_text(64)
    """Differs for each start of the agent; equal on all connections of one start."""
    pod_uid: str = a_text(128, default="")
    round: RoundId | None = a_round(optional=True, default=None)
    """The round in which its workers run now, for a coordinator that does not know it. None: no workers run."""
    last_round: RoundId | None = a_round(optional=True, default=None)
    """Without workers: the last round that it took part in. A new coordinator then knows which round has ended."""
    left: tuple[int, ...] = some_ints(default=())
    """Ranks of members that have left `round`, and without which the others go on."""
    change: int = an_int(0, default=0)
    """The last change of the members of `round` that its workers know of. 0: none."""
    rank: int = an_int(0, MAX_MEMBERS, default=0)
    """Its place in `round` or `last_round`, and the number of members there."""
    size: int = an_int(0, MAX_MEMBERS, default=0)
    restarts: int = an_int(0, default=0)
    """Restarts after failures in this job up to that round, as its assignment had them."""
    past_failures: tuple[int, ...] = some_ints(default=())
    """As its last assignment had them, for a coordinator that does not know them."""
    past_age: int = an_int(0, default=0)
    """Seconds since that assignment."""
    done: bool = a_flag(default=False)
    versions: Mapping[str, str | None] = some_texts(default_factory=dict)
    warnings: bool = a_flag(default=True)
    """False: unequal versions end the job. True: they are a problem of the job."""
    clock: float = a_number(default=0.0)
    """The pod's wall clock at the time of sending, in seconds. 0: unknown."""
    version: int = an_int(1, 1000, default=VERSION)


@dataclass(frozen=True, slots=True)
class Join(Message):
    """The agent has no workers and waits for the next round. Its store's port is open."""

    kind: ClassVar[str] = "join"
    port: int = an_int(1, 65535)
    round: RoundId | None = a_round(optional=True, default=None)
    """The last round that it took part in, or knows to be over. It starts no round up to this one."""
    caused: bool = a_flag(default=False)
    """True if that round ended for another reason than a failure: the coordinator reported it, or the agent
    heard no other process. What fails in it as a consequence costs no restart."""


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """Workers of a round failed in this pod. The agent sends it before it joins again."""

    kind: ClassVar[str] = "failed"
    round: RoundId = a_round()
    rank: int = an_int(0)
    local_rank: int = an_int(0)
    exit_code: int = an_int(0, 255)
    message: str = a_text(4096)
    traceback: str = a_text(TRACEBACK_LIMIT, keep_end=True, default="")
    also: tuple[int, ...] = some_ints(default=())
    """Ranks of this pod that failed later."""
    hang: bool = a_flag(default=False)
    """True if the workers live but make no progress."""
    waits: bool = a_flag(default=False)
    """Of a hang: True if the rank waits for others in a collective, so it is not the cause."""
    stopped: bool = a_flag(default=False)
    """Of a hang: True if a signal has stopped the rank, so nothing else is the cause."""
    places: Mapping[str, str | None] = some_texts(default_factory=dict)
    """Of a hang: where each rank of this pod is, by its script's innermost frame, like `train.py:8 load()`. None: it
    gives no stack."""
    age: float = a_number(default=0.0)
    """Seconds between the failure and the sending of this message."""
    idle: float = a_number(default=0.0)
    """Of a hang: seconds between the last progress and the failure. 0: unknown."""
    errors: tuple[str, ...] = some_names(default=())
    raised_in: str = a_text(256, default="")
    """Types of the error, and the module that raised it (`root_cause`)."""
    positions: tuple[GroupPosition, ...] = some_positions(default=())
    """How far each rank of this pod is in its process groups. Empty: not known."""
    early: bool = a_flag(default=False)
    """True if the rank ended with success while others of this pod still needed it; the exit code is theirs."""


@dataclass(frozen=True, slots=True)
class Done(Message):
    """All workers of this agent have succeeded."""

    kind: ClassVar[str] = "done"
    round: RoundId = a_round()
    age: float = a_number(default=0.0)
    """Seconds between the end of the last of them and the sending of this message."""


@dataclass(frozen=True, slots=True)
class Resumed(Message):
    """The members agreed on a round without a coordinator, and its workers run."""

    kind: ClassVar[str] = "resumed"
    round: RoundId = a_round()
    restarts: int = an_int(0)
    reason: str = a_text(1024, default="")
    age: float = a_number(default=-1.0)
    """Seconds since the workers of the round before ended here. Negative: unknown."""


@dataclass(frozen=True, slots=True)
class Draining(Message):
    """This pod has received SIGTERM and ends within `seconds`."""

    kind: ClassVar[str] = "draining"
    seconds: float = a_number()
    reason: str = a_text(256, default="")
    handles: bool = a_flag(default=False)
    """True if a worker handles SIGTERM itself: it may save together with the workers of the other members."""


@dataclass(frozen=True, slots=True)
class Unreachable(Message):
    """The agent cannot connect to a peer's port."""

    kind: ClassVar[str] = "unreachable"
    round: RoundId = a_round()
    peer: str = a_text(128)
    error: str = a_text(512)


@dataclass(frozen=True, slots=True)
class Welcome(Message):
    """The coordinator accepts a hello."""

    kind: ClassVar[str] = "welcome"
    term: int = an_int(0)


@dataclass(frozen=True, slots=True)
class Refused(Message):
    """The coordinator refuses the agent and closes the connection. `again`: a later attempt may succeed."""

    kind: ClassVar[str] = "refused"
    message: str = a_text(1024)
    again: bool = a_flag(default=False)
    fenced: bool = a_flag(default=False)
    """True if another pod has taken this replica: the agent must end."""


@dataclass(frozen=True, slots=True)
class Assigned(Message):
    """A new round: the agent's place in it, and the address of the store that rank 0's agent hosts."""

    kind: ClassVar[str] = "assigned"
    round: RoundId = a_round()
    rank: int = an_int(0)
    size: int = an_int(1)
    first_rank: int = an_int(0)
    """The rank of the agent's first worker."""
    world_size: int = an_int(1)
    master_address: str = a_text(64)
    master_port: int = an_int(1, 65535)
    restarts: int = an_int(0)
    """Restarts after failures so far in this job; equal for all members."""
    neighbour: str = a_text(128, default="")
    """host:port of a peer. The agent connects once, so that a blocked port is reported at once. Empty: no peer."""
    reason: str = a_text(1024, default="")
    secret: str = a_text(128, default="", repr=False)
    """Random, new for each round: members prove with it to each other what they write to the round's store."""
    certificate: str = a_text(4096, default="", repr=False)
    """This member's certificate for the round, its private key, and what signed the certificates of all (PEM): members
    encrypt with it what they copy to each other, and prove which of them they are. Empty: the operator's TLS is off."""
    past_failures: tuple[int, ...] = some_ints(default=())
    """The job's last failures, for the next coordinator (`rounds/past_failures`). The agent repeats them unread."""
    zone: str = a_text(256, default="")
    """The zone of this pod's node: copies of checkpoints go to other zones first. Empty: unknown."""
    enters: int = an_int(0, default=0)
    """The number of the change by which this member comes into a round that runs. 0: the round begins."""


@dataclass(frozen=True, slots=True)
class Restart(Message):
    """Kill the workers of this round or of an older one, then join again."""

    kind: ClassVar[str] = "restart"
    round: RoundId = a_round()
    reason: str = a_text(1024, default="")
    dump: bool = a_flag(default=False)
    """First print the workers' stacks and report where they are."""
    caused: bool = a_flag(default=False)
    """True if the round ends for another reason than a failure. The agent repeats it when it joins."""
    grace: float = a_number(default=0.0)
    """Seconds in which the workers may end after SIGTERM. 0: SIGKILL at once."""


@dataclass(frozen=True, slots=True)
class Shrink(Message):
    """The workers of this round go on without some members, which have left it."""

    kind: ClassVar[str] = "shrink"
    round: RoundId = a_round()
    number: int = an_int(1)
    """Grows with each change of the round."""
    members: tuple[int, ...] = some_ints(default=())
    """All members that have left the round, as ranks of members."""
    ranks: tuple[int, ...] = some_ints(default=())
    """All ranks of their workers."""
    restarts: int = an_int(0, default=0)
    """As in `Assigned`, with the failure that has led to this change."""
    past_failures: tuple[int, ...] = some_ints(default=())
    """As in `Assigned`."""
    awaited: bool = a_flag(default=False)
    """True if members wait to come back: the workers stop behind their script's next save."""
    entering: tuple[int, ...] = some_ints(default=())
    """Ranks of workers that prepare to come in, by the change after this one."""
    reason: str = a_text(1024, default="")


@dataclass(frozen=True, slots=True)
class Checkpoint(Message):
    """Ask the workers for a checkpoint. `number` grows with each request."""

    kind: ClassVar[str] = "checkpoint"
    round: RoundId = a_round()
    number: int = an_int(1)
    seconds: float = a_number()
    reason: str = a_text(1024, default="")


@dataclass(frozen=True, slots=True)
class Hold(Message):
    """Keep waiting; `reason` names what for."""

    kind: ClassVar[str] = "hold"
    reason: str = a_text(1024)
    round: RoundId | None = a_round(optional=True, default=None)
    """The round that trains without this agent: the members of an older one must not go on by themselves any more."""


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """End the agent: end the workers and exit with this code."""

    kind: ClassVar[str] = "stop"
    exit_code: int = an_int(0, 255)
    reason: str = a_text(64)
    message: str = a_text(4096)


@dataclass(frozen=True, slots=True)
class Terminating(Message):
    """The agent's pod is being deleted. A shell as the container's first process does not forward SIGTERM."""

    kind: ClassVar[str] = "terminating"


@dataclass(frozen=True, slots=True)
class Finished(Message):
    """All members of the round have succeeded: exit with code 0."""

    kind: ClassVar[str] = "finished"
    round: RoundId = a_round()


@dataclass(frozen=True, slots=True)
class HeartbeatReply(Message):
    """The coordinator has received a heartbeat."""

    kind: ClassVar[str] = "heartbeat_reply"

    def to_line(self) -> bytes:
        """Return a constant line: a large job needs a thousand of them per second."""
        return _HEARTBEAT_REPLY


FromAgent = Hello | Join | Heartbeat | Failed | Done | Resumed | Draining | Unreachable
ToAgent = (
    Welcome
    | Refused
    | Assigned
    | Restart
    | Shrink
    | Checkpoint
    | Save
    | Hold
    | Stop
    | Terminating
    | Finished
    | HeartbeatReply
)

_HEARTBEAT_REPLY = b'{"kind":"heartbeat_reply"}\n'
_FROM_AGENT: dict[str, type[Any]] = {
    message.kind: message for message in (Hello, Join, Heartbeat, Failed, Done, Resumed, Draining, Unreachable)
}
_TO_AGENT: dict[str, type[Any]] = {
    message.kind: message
    for message in (
        Welcome,
        Refused,
        Assigned,
        Restart,
        Shrink,
        Checkpoint,
        Save,
        Hold,
        Stop,
        Terminating,
        Finished,
        HeartbeatReply,
    )
}


def read_from_agent(line: bytes) -> FromAgent:
    """Read a message of an agent. Raises ProtocolError."""
    message: FromAgent = _read(line, _FROM_AGENT)
    return message


def read_to_agent(line: bytes) -> ToAgent:
    """Read a message of the coordinator. Raises ProtocolError."""
    message: ToAgent = _read(line, _TO_AGENT)
    return message


def _read(line: bytes, known: Mapping[str, type[Any]]) -> Any:
    if len(line) > LINE_LIMIT:
        raise ProtocolError(f"a message of {len(line)} bytes: expected at most {LINE_LIMIT}")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{line[:80]!r} is not JSON: {str(error)[:120]}") from None
    kind = values.get("kind") if isinstance(values, dict) else None
    found = known.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise ProtocolError(f"kind: {str(kind)[:80]!r} is not one of {', '.join(sorted(known))}")
    return found.from_object(values)
