"""At the start of a round each member tries one peer's port: a closed one becomes a problem of the job."""

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Assigned, Hello, Join, Message, RoundId, Unreachable
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.rendezvous.membership import Membership
from pytorchjob_agent.rendezvous.session import Session
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.torch

ROUND = RoundId(1, 1)


class Client:
    """A coordinator that assigns a round of one member, with this neighbour, as soon as the member waits for one."""

    def __init__(self, neighbour: str) -> None:
        self.session = Session(Hello("job", "pod-0", "token", 0, "127.0.0.1", 1, "first"), 0.0)
        self.sent: list[Message] = []
        self._neighbour = neighbour

    @property
    def inbox(self) -> Inbox:
        return self.session.inbox

    def update(self, change: Callable[[Session], None]) -> None:
        change(self.session)

    def wait(self, enough: Any, seconds: float) -> Inbox:
        join = next(message for message in self.session.standing.then if isinstance(message, Join))
        assigned = Assigned(ROUND, 0, 1, 0, 1, "127.0.0.1", join.port, 0, neighbour=self._neighbour)
        return replace(self.inbox, assigned=assigned)

    def away(self) -> float:
        return 0.0

    def absent(self) -> bool:
        return False

    def contact_at(self) -> float:
        return 0.0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def close(self) -> None:
        pass


def test_a_closed_port_is_reported() -> None:
    neighbour = f"127.0.0.1:{free_port()}"
    client = Client(neighbour)
    membership = Membership(client, "127.0.0.1", 1.0)  # type: ignore[arg-type]
    membership.next_round()
    until(lambda: client.sent)
    membership.close()
    assert [type(message) for message in client.sent] == [Unreachable]
    assert client.sent[0] == Unreachable(ROUND, neighbour, "ConnectionRefusedError: [Errno 111] Connection refused")


def test_an_open_port_is_tried_and_not_reported() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as open_port:
        host, port = open_port.getsockname()
        client = Client(f"{host}:{port}")
        membership = Membership(client, "127.0.0.1", 1.0)  # type: ignore[arg-type]
        membership.next_round()
        open_port.settimeout(90)
        open_port.accept()[0].close()
        membership.close()
    assert client.sent == []
