"""A port of the agent: who gets a thread, and who must leave because others come.

One thread has all connections that have not asked for anything yet: it accepts them, encrypts them, and reads their
first message. None can hold it up, and they displace each other as at the coordinator (`contract/unauthenticated`). A
connection whose first message is accepted gets a thread of its own. If all threads are taken, it waits for its turn.
"""

import resource
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pytorchjob_agent.contract.unauthenticated import EntryStage, Unauthenticated
from pytorchjob_agent.system.alarm import Alarm

_ACCEPTS_AT_ONCE = 32
_CHUNK = 64 * 1024
_LITTLE = 1024
"""Bytes that a connection may have sent without being a costly one."""
_MOST_HELD = 16 * 2**20
"""Bytes of first messages that are incomplete, of all connections together."""
_PATIENCE_SECONDS = 3.0
"""How often a connection that waits for its turn is told so: less than the silence at which its peer gives up."""
_LONGEST_WAIT = 60.0
_CHECK_SECONDS = 0.25
"""Between two looks at the deadlines of all connections: a crowd makes each look long."""
_RETRY = 0.1
_MAPPED = "::ffff:"
_AGAIN = (BlockingIOError, ssl.SSLWantReadError)

Task = Callable[[socket.socket], None]
"""What a thread does with a connection. The connection blocks; the port closes it afterwards."""


class NotAdmittedError(Exception):
    """A first message is refused; `answer` is sent, as far as it fits into the kernel's buffer."""

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Entrance:
    """What one new connection must pass."""

    read: Callable[[bytearray], Task | None]
    """Gets all that has been sent; None: there is more to come. Raises NotAdmittedError."""
    context: ssl.SSLContext | None = None
    """None: without TLS."""
    greeting: bytes = b""
    """Sent before the peer must send anything."""
    patience: bytes = b""
    """Sent now and then while the connection waits for its turn."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How much a port takes."""

    seconds: float
    """For TLS and the first message together."""
    most_bytes: int
    """Of the first message."""
    threads: int = 16


@dataclass(slots=True, eq=False)
class _Caller:
    socket: socket.socket
    entrance: Entrance
    deadline: float
    secure: bool
    data: bytearray = field(default_factory=bytearray)
    task: Task | None = None


class Port:
    """Serves a listening socket from its creation until `close`."""

    def __init__(self, listener: socket.socket, name: str, enter: Callable[[], Entrance], rules: Rules) -> None:
        """Take over the listener; `enter` is called for each new connection."""
        self._listener, self._name, self._enter, self._rules = listener, name, enter, rules
        listener.setblocking(False)
        self._unauthenticated: Unauthenticated[_Caller] = Unauthenticated(_limits())
        self._held = 0
        self._waiting: deque[_Caller] = deque()
        self._free = rules.threads
        self._told_at = self._check_at = 0.0
        self._closed = False
        self._alarm = Alarm()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def number(self) -> int:
        """The port's number."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Close the port, and all connections that have no thread."""
        if self._closed:
            return
        self._closed = True
        self._alarm.ring()
        self._thread.join()
        self._alarm.close()

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
        finally:
            for caller in [*self._unauthenticated, *self._waiting]:
                caller.socket.close()
            self._selector.close()
            self._listener.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._pause()):
            if key.fileobj is self._alarm:
                self._alarm.hush()
            elif key.data is None:
                self._accept()
            elif self._unauthenticated.stage(key.data) is not None:  # not displaced a moment ago
                self._hear(key.data)
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + _CHECK_SECONDS
            for caller in self._unauthenticated:
                if caller.deadline <= now:
                    self._drop(caller)
        self._serve(now)

    def _pause(self) -> float | None:
        """Return the seconds until deadlines are compared, or those that wait are told so."""
        times = [self._check_at] if len(self._unauthenticated) else []
        if self._waiting:
            times.append(self._told_at + _PATIENCE_SECONDS)
        return max(min(times) - time.monotonic(), 0.0) if times else None

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._free_file()
                return
            self._begin(accepted, str(address[0]).removeprefix(_MAPPED))

    def _free_file(self) -> None:
        """Without a free descriptor the listener stays readable: another connection goes."""
        displaced = self._unauthenticated.displace()
        if displaced is None:
            time.sleep(_RETRY)
        else:
            self._close(displaced)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        try:
            accepted.setblocking(False)
            entrance = self._enter()
            caller = _Caller(accepted, entrance, time.monotonic() + self._rules.seconds, entrance.context is None)
            if caller.secure:
                accepted.send(entrance.greeting)
            self._selector.register(accepted, selectors.EVENT_READ, caller)
        except (OSError, ValueError):  # the peer has gone already
            accepted.close()
            return
        self._make_room(self._unauthenticated.add(caller, address))

    def _hear(self, caller: _Caller) -> None:
        """Read what a connection has sent, and give it a task once that is a whole message."""
        if self._unauthenticated.stage(caller) is EntryStage.SILENT:
            self._make_room(self._unauthenticated.advance(caller, EntryStage.STARTED))
        try:
            if not caller.secure:
                self._shake_hands(caller)
            self._receive(caller)
            task = caller.entrance.read(caller.data)
        except NotAdmittedError as refused:
            with suppress(OSError):
                caller.socket.send(refused.answer)
            self._drop(caller)
        except _AGAIN:
            pass
        except Exception:  # whatever one peer sends, the port stays open for the others
            self._drop(caller)
        else:
            if task is not None:
                self._forget(caller)
                caller.task, caller.data = task, bytearray()
                caller.deadline = time.monotonic() + _LONGEST_WAIT
                self._waiting.append(caller)

    def _shake_hands(self, caller: _Caller) -> None:
        if not isinstance(caller.socket, ssl.SSLSocket):
            self._encrypt(caller)
        assert isinstance(caller.socket, ssl.SSLSocket)
        caller.socket.do_handshake()
        caller.secure = True
        self._make_room(self._unauthenticated.advance(caller, EntryStage.COSTLY))
        caller.socket.send(caller.entrance.greeting)

    def _encrypt(self, caller: _Caller) -> None:
        """Only now: a connection that stays silent costs no more than its socket."""
        assert caller.entrance.context is not None
        plain = caller.socket
        self._selector.unregister(plain)
        caller.socket = caller.entrance.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._selector.register(caller.socket, selectors.EVENT_READ, caller)

    def _receive(self, caller: _Caller) -> None:
        """Read all that is there. Raises OSError if the peer has left, or has sent too much."""
        while True:
            try:
                data = caller.socket.recv(_CHUNK)
            except _AGAIN:
                break
            if not data:
                raise ConnectionResetError
            caller.data += data
            self._held += len(data)
            if len(caller.data) > self._rules.most_bytes:
                raise ConnectionAbortedError
        if len(caller.data) > _LITTLE and self._unauthenticated.stage(caller) is not EntryStage.COSTLY:
            self._make_room(self._unauthenticated.advance(caller, EntryStage.COSTLY))
        if self._held > _MOST_HELD:
            self._drop(max(self._unauthenticated, key=lambda other: len(other.data)))
            if self._unauthenticated.stage(caller) is None:
                raise ConnectionAbortedError

    def _make_room(self, displaced: _Caller | None) -> None:
        if displaced is not None:
            self._close(displaced)

    def _drop(self, caller: _Caller) -> None:
        if self._unauthenticated.remove(caller):
            self._close(caller)

    def _close(self, caller: _Caller) -> None:
        self._forget(caller)
        caller.socket.close()

    def _forget(self, caller: _Caller) -> None:
        self._unauthenticated.remove(caller)
        self._selector.unregister(caller.socket)
        self._held -= len(caller.data)

    def _serve(self, now: float) -> None:
        """Give threads to those that wait, and tell the others that they wait."""
        while self._waiting and self._take_thread():
            caller = self._waiting.popleft()
            threading.Thread(target=self._work, args=(caller,), name=self._name, daemon=True).start()
        if self._waiting and now - self._told_at >= _PATIENCE_SECONDS:
            self._told_at = now
            self._waiting = deque(caller for caller in self._waiting if caller.deadline > now and self._tell(caller))

    def _tell(self, caller: _Caller) -> bool:
        """Return whether the peer of a connection still waits for its turn."""
        try:
            caller.socket.send(caller.entrance.patience)
        except OSError:
            caller.socket.close()
            return False
        return True

    def _take_thread(self) -> bool:
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
            return True

    def _work(self, caller: _Caller) -> None:
        assert caller.task is not None
        try:
            caller.socket.settimeout(self._rules.seconds)
            caller.task(caller.socket)
        finally:
            caller.socket.close()
            with self._lock:
                self._free += 1
            self._alarm.ring()


def _limits() -> dict[EntryStage, int]:
    """Return how many connections of each stage a port has: a small part of the files that the agent may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = 512 if files == resource.RLIM_INFINITY else min(max(files // 32, 16), 512)
    return {EntryStage.SILENT: most, EntryStage.STARTED: most, EntryStage.COSTLY: most // 2}
