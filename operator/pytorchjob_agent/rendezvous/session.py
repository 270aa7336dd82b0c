"""The agent's side of the conversation with the coordinator: bytes in, bytes out, time as an argument. Pure.

`coordinator_client` carries it out with sockets and a thread; the tests do so with simulated links. The standing is
sent again on every new connection. So neither a lost message nor a coordinator that has forgotten everything does harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytorchjob_agent.contract.messages import (
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    LINE_LIMIT,
    Assigned,
    Done,
    Draining,
    Failed,
    Heartbeat,
    Hello,
    Join,
    Message,
    ProtocolError,
    Resumed,
    RoundId,
    Shrink,
    read_to_agent,
)
from pytorchjob_agent.rendezvous import inbox as commands
from pytorchjob_agent.rendezvous.inbox import Inbox

GREETING_SECONDS = 0.5
"""How long an agent sleeps at most while the coordinator has not accepted its hello."""
AWAY_SECONDS = 1.5
"""An agent does not wait for a coordinator that has not answered for this time."""
_SLEEP_SECONDS = 2.0
"""An agent that sent nothing for this long was frozen itself: it sends a heartbeat every second."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_REFUSED_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """The agent's present situation: its hello, and the messages that follow it."""

    hello: Hello
    then: tuple[Message, ...] = ()
    since: float = 0.0
    """When these messages were made: their ages count from then on."""

    def aged(self, message: Message, now: float) -> Message:
        """Return the message as it is sent now."""
        if not isinstance(message, Done | Failed | Resumed) or message not in self.then:
            return message
        return replace(message, age=message.age + max(now - self.since, 0.0))


class Session:
    """One agent's conversation over all of its connections. Not thread-safe; times are monotonic seconds."""

    def __init__(self, hello: Hello, now: float) -> None:
        """Start without a connection."""
        self.inbox = Inbox()
        """The commands that stand."""
        self.standing = Standing(hello)
        self._outbox: list[Message] = []
        self._away_since: float | None = now
        self._tried = False
        """Whether a new connection has failed since the coordinator is away."""
        self._pause = _FIRST_PAUSE
        self._pending = b""
        self._heard = self.heard_at = now
        """`heard_at`: when the coordinator last sent anything. A frozen agent finds out late that it is away."""
        self._flushed = self._awake_since = self._assigned_at = now
        self._next_heartbeat: float | None = None
        """None until the coordinator has accepted the hello of this connection."""
        self._welcomes = 0

    # The connection.

    def connect(self, now: float, clock: float, token: str = "") -> bytes:
        """Start on a new connection: return the hello; `clock` is the wall time in seconds.

        `token` is the pod's credential now; empty: the one in the hello.
        """
        self._outbox.clear()  # what still counts of it is part of the standing
        self._pending, self._heard, self._next_heartbeat = b"", now, None
        self._welcomes = self.inbox.welcomes
        hello, age = self.standing.hello, int(now - self._assigned_at)
        return replace(hello, clock=clock, past_age=age, token=token or hello.token).to_line()

    def disconnect(self, now: float) -> bool:
        """Note the end of a connection, or a failed attempt; True if the coordinator was connected until now.

        After a silence the coordinator is away since it was last heard, or since this agent itself was last frozen.
        """
        self._next_heartbeat = None
        if self._away_since is not None:
            self._tried = True
            return False
        since = max(self._heard, self._awake_since) if self._is_silent(now) else now
        self._away_since, self._tried, self._pause = since, False, _FIRST_PAUSE
        return True

    def pause(self) -> float:
        """Return the seconds until the next attempt to connect, before any jitter; they grow with each attempt."""
        pause, longest = self._pause, _REFUSED_PAUSE if self.inbox.refused else _LONGEST_PAUSE
        self._pause = min(pause * 2, longest)
        return pause

    def away(self, now: float) -> float:
        """Return the seconds without the coordinator; 0 while it hears this agent."""
        return 0.0 if self._away_since is None else now - self._away_since

    def absent(self, now: float) -> bool:
        """Return whether the members have to do without the coordinator: it is away, and a new connection has failed.

        A connection that stalls shows the first alone. The coordinator may have gone on meanwhile with other members.
        """
        return self._tried and self.away(now) > AWAY_SECONDS

    # Bytes in.

    def lines(self, data: bytes, now: float) -> Sequence[bytes]:
        """Return the lines that are complete after this data; raises ProtocolError if a line is too long.

        Raises ConnectionError after a silence as long as the lease: an agent that was frozen for that time reads what
        was sent to it before, and another group may have begun meanwhile.
        """
        self._check_silence(now)
        self._heard = self.heard_at = now
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > LINE_LIMIT:
            raise ProtocolError(f"a message of more than {LINE_LIMIT} bytes")
        return lines

    def receive(self, line: bytes) -> bool:
        """Read one message; True if it changes the inbox. Raises ProtocolError."""
        before = self.inbox
        self.inbox = commands.receive(before, read_to_agent(line))
        if self.inbox.shrink is not None and self.inbox.shrink is not before.shrink:
            self._shrink(self.inbox.shrink)
        return self.inbox is not before

    # Bytes out.

    def heartbeat_due(self, now: float) -> bool:
        """Return whether `flush` needs a heartbeat now."""
        return self._next_heartbeat is not None and now >= self._next_heartbeat

    def flush(self, now: float, heartbeat: Heartbeat | None = None) -> bytes:
        """Return what is to be sent now; raises ConnectionError after a silence as long as the lease."""
        if now - self._flushed > _SLEEP_SECONDS:
            self._awake_since = now
        self._flushed = now
        messages: list[Message] = []
        if self._next_heartbeat is None and self.inbox.welcomes > self._welcomes:
            messages = self._greet(now)
        elif self._next_heartbeat is not None:
            messages, self._outbox = self._outbox, []
            if heartbeat is not None:
                messages.append(heartbeat)
                self._next_heartbeat = now + HEARTBEAT_SECONDS
        self._check_silence(now)
        return b"".join(self.standing.aged(message, now).to_line() for message in messages)

    def _is_silent(self, now: float) -> bool:
        return now - self._heard > LEASE_SECONDS

    def _check_silence(self, now: float) -> None:
        if self._is_silent(now):
            raise ConnectionError(f"the coordinator has sent nothing for {LEASE_SECONDS:g} s")

    def _greet(self, now: float) -> list[Message]:
        """Return what follows an accepted hello: the standing, and what is newer than the hello, in its order."""
        self._next_heartbeat, self._away_since = now + HEARTBEAT_SECONDS, None
        unsent, self._outbox = self._outbox, []
        return [*(message for message in self.standing.then if message not in unsent), *unsent]

    def wait_seconds(self, now: float) -> float:
        """Return how long nothing needs to be sent."""
        return GREETING_SECONDS if self._next_heartbeat is None else max(self._next_heartbeat - now, 0.0)

    def send(self, message: Message) -> None:
        """Send a message once; it is lost without a connection."""
        self._outbox.append(message)

    # The standing.

    @property
    def restarts(self) -> int:
        """Restarts of the job, as far as this member has heard."""
        return self.standing.hello.restarts

    def stand(self, *then: Message, now: float = 0.0, **changes: object) -> None:
        """Change the standing: `changes` are fields of the hello. The coordinator receives `then` now and again.

        `now` is needed for messages with an age.
        """
        self.standing = Standing(replace(self.standing.hello, **changes), then, now)  # type: ignore[arg-type]
        self._outbox += then

    def join(self, reports: Sequence[Message], join: Join, *, now: float) -> None:
        """Wait for a round without workers; the coordinator receives the reports before the request to join."""
        hello = self.standing.hello
        if hello.rank in hello.left:
            reports = _without_failures(reports)
        self.stand(*reports, join, now=now, round=None, last_round=hello.round or hello.last_round, done=False)

    def begin(
        self, assigned: Assigned, *, agreed: bool, reports: Sequence[Message] = (), ended_at: float = 0.0
    ) -> None:
        """Take part in a round; `agreed`: the members agreed on it without the coordinator.

        The coordinator then hears later how the workers of the round before failed here, and that they ended at
        `ended_at`.
        """
        failures = (replace(report, traceback="") for report in reports if isinstance(report, Failed))
        missed: tuple[Message, ...] = ()
        if agreed:
            missed = (Resumed(assigned.round, assigned.restarts, assigned.reason, 0.0), *failures)
        self.inbox = commands.begin(self.inbox, assigned.round, assigned.enters)
        if not agreed:  # otherwise no coordinator has assigned it
            self._assigned_at = self._heard
            self.stand(past_failures=assigned.past_failures)
        self.stand(
            *missed,
            now=ended_at,
            round=assigned.round,
            last_round=None,
            left=(),
            change=assigned.enters,
            rank=assigned.rank,
            size=assigned.size,
            restarts=assigned.restarts,
            done=False,
        )

    def _shrink(self, shrink: Shrink) -> None:
        """Note who has left the round, and what the coordinator knew then: another one has to know it.

        A member that has left itself reports no more how: its failure is counted.
        """
        hello = replace(self.standing.hello, left=shrink.members, change=shrink.number)
        hello = replace(hello, restarts=shrink.restarts, past_failures=shrink.past_failures)
        then = self.standing.then
        if hello.rank in shrink.members:
            then = _without_failures(then)
        self._assigned_at = self._heard
        self.standing = replace(self.standing, hello=hello, then=then)

    def skip(self) -> None:
        """Drop a round that has ended before it began."""
        self.inbox = commands.skip(self.inbox)

    def finish(self, id_: RoundId, age: float = 0.0, *, now: float) -> None:
        """Report that all workers here ended well; `age`: seconds since then."""
        self.stand(Done(id_, age), now=now, done=True)

    def leave(self, seconds: float, reason: str, *, handles: bool = False) -> None:
        """Report that this pod has to go within these seconds; `handles`: its workers handle SIGTERM themselves."""
        self.stand(Draining(seconds, reason, handles))


def _without_failures(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(message for message in messages if not isinstance(message, Failed))
