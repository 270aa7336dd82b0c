"""The one connection to the coordinator: kept, or made anew, by a thread of its own. It decides nothing.

What has to be said of the present situation is said again on every new connection, so that neither a lost message nor
a coordinator that has forgotten everything does harm.
"""

import base64
import logging
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME, CoordinatorEndpoint
from pytorchjob_agent.contract.messages import (
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    LINE_LIMIT,
    Heartbeat,
    Hello,
    Message,
    ProtocolError,
    read_to_agent,
)
from pytorchjob_agent.rendezvous import inbox as orders
from pytorchjob_agent.rendezvous.dial import Dialer
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.system.alarm import Alarm

_log = logging.getLogger(__name__)
_CONNECT_SECONDS = 2.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_REFUSED_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a hello says, and what follows it."""

    hello: Hello
    then: tuple[Message, ...] = ()


class Client:
    """Says and hears; everything that comes in ends up in `inbox`."""

    def __init__(self, env: CoordinatorEndpoint, standing: Standing, beat: Callable[[], Heartbeat]) -> None:
        """Prepare; `beat` is asked once a second for what to tell."""
        self._env = env
        self._dialer = Dialer(env.host, env.port)
        self._standing = standing
        self._beat = beat
        self._lock = threading.Condition()
        self._inbox = Inbox()
        self._outbox: list[Message] = []
        self._since: float | None = time.monotonic()  # without connection since
        self._closing = False
        self._alarm = Alarm()
        self.on_news: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Say what is left to say, and hang up."""
        self._closing = True
        self._alarm.ring()
        self._thread.join(seconds)

    @property
    def inbox(self) -> Inbox:
        """What has been ordered so far."""
        return self._inbox

    def away(self) -> float:
        """Seconds without the coordinator; 0 while it hears us."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def stand(self, *then: Message, **changes: object) -> None:
        """Change what is said of us from now on, and say the new part now if anybody listens."""
        with self._lock:
            hello = replace(self._standing.hello, **changes)  # type: ignore[arg-type]
            self._standing = Standing(hello, then)
            self._outbox += then
        self._alarm.ring()

    def say(self, message: Message) -> None:
        """Say something once; lost if nobody listens."""
        with self._lock:
            self._outbox.append(message)
        self._alarm.ring()

    def beat_now(self) -> None:
        """Tell how far we are before the next second."""
        self.say(self._beat())

    def begin(self, change: Callable[[Inbox], Inbox]) -> None:
        """Change the inbox, as when a round has begun."""
        with self._lock:
            self._inbox = change(self._inbox)

    def wait(self, enough: Callable[[Inbox], bool], seconds: float) -> Inbox:
        """Return the inbox once it is enough, or after so long."""
        with self._lock:
            self._lock.wait_for(lambda: enough(self._inbox), seconds)
            return self._inbox

    def nudge(self) -> None:
        """Have `wait` look again."""
        with self._lock:
            self._lock.notify_all()

    def _hear(self, line: bytes) -> None:
        message = read_to_agent(line)
        with self._lock:
            before, self._inbox = self._inbox, orders.hear(self._inbox, message)
            if self._inbox is before:
                return  # a pong, or an order of a round that is over: nobody is woken for it
            self._lock.notify_all()
        self.on_news()

    def _run(self) -> None:
        pause, told = _FIRST_PAUSE, ""
        while not self._closing:
            try:
                with self._connect() as sock:
                    self._converse(sock)
                    pause = _FIRST_PAUSE
            except (OSError, ProtocolError, ValueError) as error:
                words = self._inbox.refused.message if self._inbox.refused else f"{type(error).__name__}: {error}"
                if words != told:
                    _log.warning("coordinator %s:%s: %s", self._env.host, self._env.port, words)
                    told = words
            if self._since is None:
                self._since, pause, told = time.monotonic(), _FIRST_PAUSE, ""
                self.on_news()
            longest = _REFUSED_PAUSE if self._inbox.refused else _LONGEST_PAUSE
            self._sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  (no secret, only to spread the crowd)
            pause = min(pause * 2, longest)

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._closing and (left := deadline - time.monotonic()) > 0:
            _await(self._alarm, left)

    def _connect(self) -> socket.socket:
        sock = self._dialer.connect(_CONNECT_SECONDS)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._env.ca:
                sock = _context(self._env.ca).wrap_socket(sock, server_hostname=SERVER_NAME)
        except BaseException:
            sock.close()
            raise
        return sock

    def _converse(self, sock: socket.socket) -> None:
        """Talk until the connection ends; raises OSError or ProtocolError for the reason."""
        with self._lock:
            standing, self._outbox = self._standing, []
        welcomes = self._inbox.welcomes
        _send(sock, (replace(standing.hello, clock=time.time()),))
        pending, heard, next_beat, greeted = b"", time.monotonic(), 0.0, False
        while True:
            now = time.monotonic()
            if not greeted and self._inbox.welcomes > welcomes:
                greeted, self._since, next_beat = True, None, now + HEARTBEAT_SECONDS
                with self._lock:
                    unsaid, self._outbox = self._outbox, []
                # what was said since the hello went out is part of the standing, or newer
                _send(sock, (*self._standing.then, *(one for one in unsaid if one not in self._standing.then)))
            if greeted:
                _send(sock, self._due(now >= next_beat))
                next_beat = now + HEARTBEAT_SECONDS if now >= next_beat else next_beat
            if self._closing:
                return
            if now - heard > LEASE_SECONDS:
                raise ConnectionError(f"nothing heard for {LEASE_SECONDS:g} s")
            if data := _receive(sock, self._alarm, max(next_beat - now, 0.0) if greeted else 0.5):
                heard = time.monotonic()
                pending = self._lines(pending + data)

    def _due(self, beat: bool) -> Sequence[Message]:
        with self._lock:
            said, self._outbox = self._outbox, []
        return (*said, self._beat()) if beat else said

    def _lines(self, data: bytes) -> bytes:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._hear(line)
        if len(rest) > LINE_LIMIT:
            raise ProtocolError(f"a message of more than {LINE_LIMIT} bytes")
        return rest


def _context(ca: str) -> ssl.SSLContext:
    """Trust the one certificate that the operator put into our environment, and no other."""
    context = ssl.create_default_context(cadata=base64.b64decode(ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # it is its own authority
    return context


def _send(sock: socket.socket, messages: Sequence[Message]) -> None:
    if messages:
        sock.settimeout(LEASE_SECONDS)
        sock.sendall(b"".join(one.to_line() for one in messages))


def _await(alarm: Alarm, seconds: float, *socks: socket.socket) -> bool:
    """Sleep until the alarm rings, a socket can be read, or so long; returns whether one can."""
    waited: list[Alarm | socket.socket] = [alarm, *socks]
    ready, _, _ = select.select(waited, [], [], seconds)
    if alarm in ready:
        alarm.hush()
    return any(one in ready for one in socks)


def _receive(sock: socket.socket, alarm: Alarm, seconds: float) -> bytes:
    """Return what has come within so long; empty when nothing has, or when there is something to say."""
    waiting = sock.pending() if isinstance(sock, ssl.SSLSocket) else 0
    if not waiting and not _await(alarm, seconds, sock):
        return b""
    sock.settimeout(0.0)
    try:
        data = sock.recv(LINE_LIMIT)
    except (BlockingIOError, ssl.SSLWantReadError):
        return b""
    if not data:
        raise ConnectionResetError("the coordinator has hung up")
    return data
