"""What an agent says first on each of its connections, and whom the answers wake."""

import os
import socket

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.messages import Heartbeat, HeartbeatReply, Hello, Hold, Message, Welcome, read_from_agent
from pytorchjob_agent.rendezvous.coordinator_client import Client
from tests.waiting import until


def _hello(server: socket.socket) -> Hello:
    """Accept a connection, read its first line, and hang up."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as lines:
        said = read_from_agent(lines.readline())
    assert isinstance(said, Hello)
    return said


def _client(server: socket.socket) -> Client:
    """Start a client of this server."""
    server.settimeout(30)
    return _client_of(server.getsockname()[1])


def _client_of(port: int) -> Client:
    env = CoordinatorEndpoint("127.0.0.1", port, os.devnull, "job", "pod-0", 0)  # the hello has the token
    client = Client(env, Hello("job", "pod-0", "token", 0, "127.0.0.1", 1, "first"), Heartbeat)
    client.start()
    return client


def test_each_hello_tells_the_time_at_which_it_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = _client(server)
        first, second = _hello(server), _hello(server)
        client.close()
    assert 0 < first.clock < second.clock


def test_a_coordinator_that_does_not_answer_is_reported_once_with_what_the_agent_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    client = _client_of(int(address.rpartition(":")[2]))
    until(lambda: printed.append(capsys.readouterr().err) or "trying again" in "".join(printed))
    attempts = client.away()
    until(lambda: client.away() > attempts + 1)
    client.close()
    problem = "ConnectionRefusedError: [Errno 111] Connection refused"
    line = f"pytorchjob-agent: coordinator {address}: {problem}; trying again\n"
    assert "".join([*printed, capsys.readouterr().err]) == line


def test_a_pong_wakes_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = _client(server)
        woken: list[str] = []
        client.on_change = lambda: woken.append(client.inbox.hold)
        connection, _ = server.accept()
        with connection:
            said: tuple[Message, ...] = (Welcome(1), HeartbeatReply(), HeartbeatReply(), Hold("one is missing"))
            connection.sendall(b"".join(one.to_line() for one in said))
            client.wait(lambda inbox: bool(inbox.hold), 30)
            client.close()
    assert woken[:2] == ["", "one is missing"]
