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
from itertools import count

from pytorchjob_agent.protocol import LINE_LIMIT, Hello, ProtocolError, Refused
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
        self._all: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], None] = {}
        """In the order in which they came."""
        self._left = asyncio.Event()
        self._quiet_until = 0.0
        self._closing = False
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
            self._closing = True
            everybody = (ticking, *self._all)
            for task in everybody:
                task.cancel()
            await asyncio.gather(*everybody, return_exceptions=True)
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
            slowest.cancel()
            self._forget_stranger(slowest)

    def _start(self, connection: socket.socket) -> None:
        task = asyncio.create_task(self._meet(connection))
        self._all.add(task)
        self._strangers[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        self._forget_stranger(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection broke for a reason of our own", exc_info=error)

    def _forget_stranger(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and task in self._strangers:
            del self._strangers[task]
            self._left.set()

    async def _meet(self, connection: socket.socket) -> None:
        """One connection from its first byte to its last."""
        peer: Peer | None = None
        try:
            _tune(connection)
            async with asyncio.timeout(self._limits.hello) as patience:
                peer = await self._open(connection)
                hello = await self._hello(peer)
                patience.reschedule(None)
            self._forget_stranger(asyncio.current_task())
            await self._talk(peer, hello)
        except _No as no:
            self._refuse(peer, no.refused)
        except ProtocolError as error:
            self._refuse(peer, Refused(str(error)[:1024]))
        except TimeoutError:
            if peer is not None and not peer.job:
                self._refuse(peer, Refused(f"no hello within {self._limits.hello:g} s", again=True))
        except (OSError, EOFError):
            pass  # it went, or spoke no TLS
        finally:
            self._close(connection, peer)

    async def _open(self, connection: socket.socket) -> Peer:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        seconds = self._limits.hello if self._ssl else None
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._ssl,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=self._limits.farewell if self._ssl else None,
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return Peer(next(self._numbers), reader, writer, self._limits)

    async def _hello(self, peer: Peer) -> Hello:
        """Return the hello of a pod that may come in; everybody else is told why not."""
        hello = await peer.read()
        if hello is None:
            raise EOFError
        if not isinstance(hello, Hello):
            raise _No(Refused("the first message must be hello"))
        wrong = door.wrong_token(hello, self._key)
        if wrong is not None:
            self._jobs.turned_away(hello.job, wrong)
            raise _No(Refused(f"token: wrong for pod {hello.pod[:63]!r} of this job"))
        stop = self._jobs.stop_for(hello)
        if stop is not None:
            peer.send(stop)
            raise EOFError
        refused = door.refusal(hello, self._jobs.known(hello.job))
        if refused is not None:
            raise _No(refused)
        return hello

    async def _talk(self, peer: Peer, hello: Hello) -> None:
        """Hand on what a pod says until its connection ends."""
        limits = self._limits
        bucket = Bucket(limits.rate, limits.burst, self._clock())
        try:
            self._jobs.enter(peer, hello)
            while not peer.gone and (message := await peer.read()) is not None:
                if isinstance(message, Hello):
                    raise _No(Refused("hello was said already"))
                if not bucket.take(self._clock()):
                    raise _No(Refused(f"more than {limits.rate:g} messages a second", again=True))
                self._jobs.said(peer, message)
        finally:
            self._jobs.left(peer)

    def _refuse(self, peer: Peer | None, refused: Refused) -> None:
        self.refusals += 1
        if peer is not None:
            self._say("refused %s: %s", f"a pod of job {peer.job}" if peer.job else "a stranger", refused.message)
            peer.refuse(refused)

    def _close(self, connection: socket.socket, peer: Peer | None) -> None:
        if peer is None:
            connection.close()
        elif self._closing:
            peer.abort()
        else:
            peer.hang_up()

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
