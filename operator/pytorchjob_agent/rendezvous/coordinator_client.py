"""The one connection to the coordinator: a thread keeps it, and makes a new one when it breaks. It decides nothing.

`session` has the conversation; this module has the sockets, the clock and the waiting.
"""

import base64
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME, CoordinatorEndpoint
from pytorchjob_agent.contract.messages import (
    LEASE_SECONDS,
    LINE_LIMIT,
    Heartbeat,
    Hello,
    Message,
    ProtocolError,
)
from pytorchjob_agent.rendezvous.api_server import ApiServer
from pytorchjob_agent.rendezvous.dial import Dialer
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.rendezvous.own_endpoint import read_credential
from pytorchjob_agent.rendezvous.session import AWAY_SECONDS, Session
from pytorchjob_agent.system.alarm import Alarm
from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.readable import wait_readable

_CONNECT_SECONDS = 2.0
_QUIET_SECONDS = 3.0
"""A coordinator that does not answer is reported after this time."""


class Client:
    """Sends and receives; every command that comes in ends up in `inbox`."""

    def __init__(self, endpoint: CoordinatorEndpoint, hello: Hello, heartbeat: Callable[[], Heartbeat]) -> None:
        """Prepare; `heartbeat` is called once a second for what to send."""
        self._endpoint = endpoint
        self._dialer = Dialer(endpoint.host, endpoint.port)
        self._heartbeat = heartbeat
        self._lock = threading.Condition()
        self._session = Session(hello, time.monotonic())
        self._closing = False
        self._alarm = Alarm()
        self._api_server = ApiServer(endpoint.authorities)
        self.on_change: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Send what is left to send, and close the connection."""
        self._closing = True
        self._alarm.ring()
        self._thread.join(seconds)

    @property
    def inbox(self) -> Inbox:
        """The commands that stand."""
        return self._session.inbox

    @property
    def restarts(self) -> int:
        """Restarts of the job, as far as this member has heard."""
        return self._session.restarts

    def away(self) -> float:
        """Return the seconds without the coordinator; 0 while it hears this agent."""
        return self._session.away(time.monotonic())

    def absent(self) -> bool:
        """Return whether the members have to do without the coordinator."""
        return self._session.absent(time.monotonic())

    def contact_at(self) -> float:
        """Return when the coordinator last sent anything, or else the API server answered; monotonic seconds."""
        return max(self._session.heard_at, self._api_server.answered_at)

    def send(self, message: Message) -> None:
        """Send a message once; it is lost without a connection."""
        self.update(lambda session: session.send(message))

    def heartbeat_now(self) -> None:
        """Report how far the workers are before the next second."""
        self.send(self._heartbeat())

    def update(self, change: Callable[[Session], None]) -> None:
        """Change the session, and send what is new in it."""
        with self._lock:
            change(self._session)
        self._alarm.ring()

    def wait(self, enough: Callable[[Inbox], bool], seconds: float) -> Inbox:
        """Return the inbox once it is enough, or after this time."""
        with self._lock:
            self._lock.wait_for(lambda: enough(self.inbox), seconds)
            return self.inbox

    def nudge(self) -> None:
        """Have `wait` check again."""
        with self._lock:
            self._lock.notify_all()

    def _run(self) -> None:
        logged = ""
        while not self._closing:
            try:
                token = read_credential(self._endpoint)
                with self._connect() as sock:
                    self._converse(sock, token)
            except (OSError, ProtocolError, ValueError) as error:
                refused = self.inbox.refused
                problem = refused.message if refused else f"{type(error).__name__}: {error}"
                # One failed attempt is usual while the pods start.
                if problem != logged and (refused or self.away() > _QUIET_SECONDS):
                    say(f"coordinator {self._endpoint.host}:{self._endpoint.port}: {problem}; trying again")
                    logged = problem
            if self._session.disconnect(time.monotonic()):
                logged = ""
                self.on_change()
            if self.away() > AWAY_SECONDS:
                self._api_server.check(time.monotonic())
            self._sleep(self._session.pause() * random.uniform(0.5, 1.5))  # noqa: S311  (only spreads the agents)

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._closing and (left := deadline - time.monotonic()) > 0:
            _await(self._alarm, left)

    def _connect(self) -> socket.socket:
        sock = self._dialer.connect(_CONNECT_SECONDS)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._endpoint.ca:
                sock = _context(self._endpoint.ca).wrap_socket(sock, server_hostname=SERVER_NAME)
        except BaseException:
            sock.close()
            raise
        return sock

    def _converse(self, sock: socket.socket, token: str) -> None:
        """Talk until the connection ends; raises OSError or ProtocolError for the reason."""
        with self._lock:
            hello = self._session.connect(time.monotonic(), time.time(), token)
        _send(sock, hello)
        while True:
            _send(sock, self._flush())
            if self._closing:
                return
            seconds = self._session.wait_seconds(time.monotonic())
            if data := _receive(sock, self._alarm, seconds):
                self._hear(data)

    def _flush(self) -> bytes:
        now = time.monotonic()
        heartbeat = self._heartbeat() if self._session.heartbeat_due(now) else None
        with self._lock:
            return self._session.flush(now, heartbeat)

    def _hear(self, data: bytes) -> None:
        for line in self._session.lines(data, time.monotonic()):
            with self._lock:
                if not self._session.receive(line):
                    continue  # a heartbeat's answer, or a command of a finished round: nothing wakes up for it
                self._lock.notify_all()
            self.on_change()


def _context(ca: str) -> ssl.SSLContext:
    """Trust the one certificate that the operator put into the pod's environment, and no other."""
    context = ssl.create_default_context(cadata=base64.b64decode(ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # it is its own authority
    return context


def _send(sock: socket.socket, data: bytes) -> None:
    if data:
        sock.settimeout(LEASE_SECONDS)
        sock.sendall(data)


def _await(alarm: Alarm, seconds: float, *socks: socket.socket) -> bool:
    """Sleep until the alarm rings, a socket can be read, or this time is over; return whether a socket can be read."""
    waited: list[Alarm | socket.socket] = [alarm, *socks]
    ready = wait_readable(waited, seconds)
    if alarm in ready:
        alarm.hush()
    return any(sock in ready for sock in socks)


def _receive(sock: socket.socket, alarm: Alarm, seconds: float) -> bytes:
    """Return the data that came within this time; empty if none came, or if there is something to send."""
    waiting = sock.pending() if isinstance(sock, ssl.SSLSocket) else 0
    if not waiting and not _await(alarm, seconds, sock):
        return b""
    sock.settimeout(0.0)
    try:
        data = sock.recv(LINE_LIMIT)
    except (BlockingIOError, ssl.SSLWantReadError):
        return b""
    if not data:
        raise ConnectionResetError("the coordinator has closed the connection")
    return data
