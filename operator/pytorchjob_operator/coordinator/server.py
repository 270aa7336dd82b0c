"""The open port: takes connections, hears each stranger's first line, and lets in who proves to be a job's pod.

Nobody can hold it up: a stranger has a few seconds, there are only so many of them, and each connection has a rate.
What the messages mean is decided elsewhere.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

from pytorchjob_agent.contract.messages import (
    LINE_LIMIT,
    FromAgent,
    Hello,
    ProtocolError,
    Refused,
    read_from_agent,
)
from pytorchjob_operator.coordinator import door
from pytorchjob_operator.coordinator.jobs import Jobs
from pytorchjob_operator.coordinator.limits import Bucket, Limits
from pytorchjob_operator.coordinator.peer import Peer

_log = logging.getLogger(__name__)
_TICK = 0.25
"""How often time is told to the jobs."""
_QUIET = 10.0
"""At most one line of the log in so many seconds says who was refused."""
_AT_ONCE = 64
"""Newcomers that are taken between two looks at the others: with few, a busy coordinator would let hardly any in."""
_BREATH = 1.0
"""How long nothing is accepted when the process has run out of files."""
_LAST_WORDS = 0.01
_BROKE = "a connection broke for a reason of our own"
_KERNEL_BUFFER = 64 * 1024
"""Bytes to a peer that the kernel may hold, so that one who does not read is soon noticed."""
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class _No(Exception):  # noqa: N818 -- it is an answer
    """Ends a conversation with the reason."""

    def __init__(self, refused: Refused) -> None:
        self.refused = refused


class Server:
    """Serves one listening socket until it is cancelled."""

    def __init__(
        self,
        key: bytes,
        jobs: Jobs,
        clock: Callable[[], float],
        ssl_context: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`key` is what the tokens are made from; without a context, no TLS."""
        self._key, self._jobs, self._clock, self._ssl = key, jobs, clock, ssl_context
        self._limits = limits or Limits()
        self._numbers = count(1)
        self._all: set[Peer] = set()
        self._strangers: dict[Peer, None] = {}
        """In the order in which they came."""
        self._left = asyncio.Event()
        self._quiet_until = 0.0
        self.refusals = 0
        """How many were not let in, whether they proved who they are or not."""

    @property
    def connections(self) -> int:
        """How many there are now, strangers too."""
        return len(self._all)

    async def serve(self, listener: socket.socket) -> None:
        """Take connections until cancelled; then all of them are closed."""
        listener.setblocking(False)
        ticking = asyncio.create_task(self._tick())
        try:
            await self._accept(listener)
        finally:
            ticking.cancel()
            for peer in tuple(self._all):
                peer.abort()
            await asyncio.gather(ticking, return_exceptions=True)
            await asyncio.sleep(_LAST_WORDS)  # sockets are closed by callbacks

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._jobs.tick()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in count(1):
            await self._make_room()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many open files, or a peer that was gone before we looked
                self._say("cannot accept: %s", error)
                await asyncio.sleep(_BREATH)
                continue
            if len(self._all) >= self._limits.connections:
                self._say("closed a new connection: there are %d, no more are taken", len(self._all))
                connection.close()
            else:
                self._start(connection)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # while there are newcomers, accepting never waits, and nobody else would run

    async def _make_room(self) -> None:
        """Wait for a stranger to come in or to leave; the one that takes longest goes if none does."""
        if len(self._strangers) < self._limits.strangers:
            return
        self._left.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.patience):
                await self._left.wait()
        if len(self._strangers) >= self._limits.strangers:
            self._say("closed a connection that has not said hello: %d others have not either", len(self._strangers))
            slowest = next(iter(self._strangers))
            self._forget_stranger(slowest)
            slowest.hang_up()

    def _start(self, connection: socket.socket) -> None:
        """Open a connection, which TLS may drag out: what else is to be done with the peer waits for its words."""
        peer = Peer(next(self._numbers), self._limits, self)
        self._all.add(peer)
        self._strangers[peer] = None
        peer.within(self._limits.hello, partial(self._too_late, peer))
        peer.opening = asyncio.create_task(self._open(peer, connection))
        peer.opening.add_done_callback(partial(self._opened, peer, connection))

    async def _open(self, peer: Peer, connection: socket.socket) -> None:
        _tune(connection)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: peer,
            connection,
            ssl=self._ssl,
            ssl_handshake_timeout=self._limits.hello if self._ssl else None,
            ssl_shutdown_timeout=self._limits.farewell if self._ssl else None,
        )

    def _opened(self, peer: Peer, connection: socket.socket, task: asyncio.Task[None]) -> None:
        peer.opening = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):  # it went, or spoke no TLS
            _log.error(_BROKE, exc_info=error)
        if not peer.is_open:
            connection.close()
            peer.connection_lost(None)  # asyncio tells only those that it has opened

    def _forget_stranger(self, peer: Peer) -> None:
        if peer in self._strangers:
            del self._strangers[peer]
            self._left.set()

    def _too_late(self, peer: Peer) -> None:
        if peer.is_open:
            self._refuse(peer, Refused(f"no hello within {self._limits.hello:g} s", again=True))
        else:
            peer.abort()

    def heard(self, peer: Peer, line: bytes) -> None:
        """A peer has said something: a stranger hello, or else it is no pod that may come in."""
        try:
            message = read_from_agent(line)
            if peer.bucket is None:
                self._meet(peer, message)
            else:
                self._hand_on(peer, peer.bucket, message)
        except _No as no:
            self._refuse(peer, no.refused)
        except ProtocolError as error:
            self._refuse(peer, Refused(str(error)[:1024]))
        except Exception:  # a defect of ours must not take the others along
            _log.exception(_BROKE)
            self.left(peer)
            peer.hang_up()

    def heard_too_much(self, peer: Peer) -> None:
        """A line has passed its limit."""
        self._refuse(peer, Refused(f"a message of more than {LINE_LIMIT} bytes"))

    def left(self, peer: Peer) -> None:
        """A peer says nothing more, or is not listened to any more."""
        self._forget_stranger(peer)
        self._jobs.left(peer)

    def closed(self, peer: Peer) -> None:
        """A connection is closed."""
        self._all.discard(peer)

    def _meet(self, peer: Peer, hello: FromAgent) -> None:
        """Let a pod in that may come in; everybody else is told why not."""
        if not isinstance(hello, Hello):
            raise _No(Refused("the first message must be hello"))
        wrong = door.wrong_token(hello, self._key)
        if wrong is not None:
            self._jobs.turned_away(hello.job, wrong)
            raise _No(Refused(f"token: wrong for pod {hello.pod[:63]!r} of this job"))
        stop = self._jobs.stop_for(hello)
        if stop is not None:
            self._forget_stranger(peer)
            peer.send(stop)
            peer.hang_up()
            return
        refused = door.refusal(hello, self._jobs.known(hello.job))
        if refused is not None:
            raise _No(refused)
        self._let_in(peer, hello)

    def _let_in(self, peer: Peer, hello: Hello) -> None:
        peer.stop_timer()
        self._forget_stranger(peer)
        peer.bucket = Bucket(self._limits.rate, self._limits.burst, self._clock())
        self._jobs.enter(peer, hello)

    def _hand_on(self, peer: Peer, bucket: Bucket, message: FromAgent) -> None:
        if isinstance(message, Hello):
            raise _No(Refused("hello was said already"))
        if not bucket.take(self._clock()):
            raise _No(Refused(f"more than {self._limits.rate:g} messages a second", again=True))
        self._jobs.said(peer, message)

    def _refuse(self, peer: Peer, refused: Refused) -> None:
        self.refusals += 1
        self._say("refused %s: %s", f"a pod of job {peer.job}" if peer.job else "a stranger", refused.message)
        self.left(peer)
        peer.refuse(refused)

    def _say(self, words: str, *details: object) -> None:
        """Log it, unless something of the kind was logged just now: strangers must not fill the disk."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            _log.warning(words, *details)


def _tune(connection: socket.socket) -> None:
    """Small messages go out at once; a peer that is silently gone is noticed by the kernel too."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
