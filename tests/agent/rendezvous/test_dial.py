"""The way to the coordinator."""

import socket
from collections.abc import Iterator

import pytest

from pytorchjob_agent.rendezvous.dial import Address, Dialer, resolve


class Names:
    """A name server that counts, and that may die."""

    def __init__(self, *answers: Address) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host: str, port: int) -> Address:
        self.asked += 1
        if not self.answers:
            raise socket.gaierror("no name server answers")
        return self.answers.pop(0)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def free() -> Address:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        return gone.getsockname()


def test_what_worked_once_is_not_looked_up_again(server: socket.socket) -> None:
    names = Names(server.getsockname())
    dialer = Dialer("coordinator", 1, names)
    for _ in range(3):
        dialer.connect(5).close()
    assert names.asked == 1


def test_a_refusal_is_no_reason_to_look_it_up_again(server: socket.socket) -> None:
    names = Names(server.getsockname())
    dialer = Dialer("coordinator", 1, names)
    dialer.connect(5).close()
    server.close()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            dialer.connect(5)
    assert names.asked == 1


def test_a_name_is_looked_up_until_it_has_led_somewhere(server: socket.socket) -> None:
    names = Names(free(), server.getsockname())
    dialer = Dialer("coordinator", 1, names)
    with pytest.raises(ConnectionRefusedError):
        dialer.connect(5)
    dialer.connect(5).close()
    assert names.asked == 2


def test_names_are_resolved() -> None:
    assert resolve("localhost", 80)[1] == 80
    assert resolve("127.0.0.1", 80) == ("127.0.0.1", 80)
    with pytest.raises(OSError, match=r".+"):
        resolve("a.b.c.pytorchjob.invalid", 80)
