"""The limits of a port of the agent, whichever protocol it serves."""

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from pytorchjob_agent.system.port import Entrance, Port, Rules, Task

MEBIBYTE = 2**20


def _read(data: bytearray) -> Task | None:
    """A line is a request, and its own answer; a defect is not foreseen."""
    if data.startswith(b"defect"):
        raise ValueError(data)
    answer = bytes(data)

    def send(sock: socket.socket) -> None:
        with suppress(OSError):  # the client may have read enough
            sock.sendall(answer)

    return send if data.endswith(b"\n") else None


class Serving:
    """A port, and clients of it."""

    def __init__(self, rules: Rules) -> None:
        self.port = Port(socket.create_server(("127.0.0.1", 0)), "tests", lambda: Entrance(_read), rules)
        self._stack = ExitStack()

    def client(self, sent: bytes = b"") -> socket.socket:
        """A new connection that has sent this."""
        sock = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port.number), 60))
        sock.sendall(sent)
        return sock

    def close(self) -> None:
        self._stack.close()
        self.port.close()


@contextmanager
def serving(seconds: float = 60.0, most_bytes: int = 100 * MEBIBYTE) -> Iterator[Callable[[bytes], socket.socket]]:
    made = Serving(Rules(seconds, most_bytes))
    try:
        yield made.client
    finally:
        made.close()


def is_closed(sock: socket.socket) -> bool:
    """Whether the port ends a connection; a port that does not would let the test wait in vain."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_whoever_sends_no_whole_message_in_time_has_to_go() -> None:
    with serving(seconds=0.5) as client:
        assert all(map(is_closed, [client(b""), client(b"half a li")]))
        assert client(b"line\n").recv(5) == b"line\n"


def test_a_first_message_that_is_too_long_ends_its_connection() -> None:
    with serving(most_bytes=1000) as client:
        assert is_closed(client(b"x" * 2000))
        assert client(b"line\n").recv(5) == b"line\n"


def test_what_one_client_sends_ends_its_connection_alone() -> None:
    with serving() as client:
        assert is_closed(client(b"defect\n"))
        assert client(b"line\n").recv(5) == b"line\n"


def test_first_messages_that_are_too_long_together_end_the_longest() -> None:
    with serving() as client:
        small = client(b"x")
        large = client(b"x" * 9 * MEBIBYTE)
        other = client(b"x" * 8 * MEBIBYTE)
        assert is_closed(large)
        for sock in (small, other):
            sock.sendall(b"\n")
            assert sock.recv(1) == b"x"


def test_without_a_free_descriptor_a_silent_connection_makes_room_for_the_next_one() -> None:
    with serving() as client:
        silent = [client(b"") for _ in range(5)]
        assert client(b"line\n").recv(5) == b"line\n"  # so all of them are accepted
        with one_descriptor():
            assert client(b"line\n").recv(5) == b"line\n"
        assert is_closed(silent[0])


@contextmanager
def one_descriptor() -> Iterator[None]:
    """This process has one descriptor left: that of the next client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    taken = list[int]()
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        os.close(taken.pop())
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
