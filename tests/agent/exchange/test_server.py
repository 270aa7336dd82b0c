"""The port for checkpoints and the one for caches: peers without the keys delay none that has them."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.server import PeerServer
from pytorchjob_agent.exchange.wire import PATIENCE, PeerConnection, PeerRefusedError
from tests.agent.crowd import Crowd
from tests.agent.saves.keys import KEYS, draw
from tests.waiting import until

PLAIN = replace(KEYS, certificate="")
Handle = Callable[[PeerConnection, dict[str, Any]], None]


def echo(connection: PeerConnection, request: dict[str, Any]) -> None:
    connection.reply(request)


class Serving:
    """A server of members, as the two kinds of servers are."""

    def __init__(self) -> None:
        self.handle: Handle = echo
        self.server = PeerServer("127.0.0.1", "tests", lambda connection, request: self.handle(connection, request))
        self.server.use(KEYS)

    def ask(self, number: int = 0, keys: RoundKeys = KEYS) -> int:
        """What a member gets back."""
        connection = self.connect(keys)
        try:
            return int(connection.ask({"number": number})["number"])
        finally:
            connection.close()

    def connect(self, keys: RoundKeys = KEYS) -> PeerConnection:
        sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        return PeerConnection(keys.as_client(sock), keys.secret)


@pytest.fixture
def serving() -> Iterator[Serving]:
    made = Serving()
    yield made
    made.server.close()


@pytest.mark.parametrize("tls", [pytest.param(False, id="half a handshake"), pytest.param(True, id="half a request")])
@pytest.mark.parametrize("size", [16, 1000])
def test_connections_that_prove_nothing_keep_no_member_out(serving: Serving, size: int, tls: bool) -> None:
    with Crowd(serving.server.port, size, tls=tls) as crowd:
        seen = crowd.came
        assert [serving.ask(number) for number in range(20)] == [*range(20)]
        assert crowd.came >= seen


@pytest.mark.parametrize("addresses", [pytest.param(1, id="the member's address"), pytest.param(50, id="50 addresses")])
@pytest.mark.parametrize("keys", [KEYS, PLAIN], ids=["tls", "plain"])
def test_idle_connections_keep_no_member_out(serving: Serving, keys: RoundKeys, addresses: int) -> None:
    serving.server.use(keys)
    with Crowd(serving.server.port, 1000, idle=True, addresses=addresses):
        assert [serving.ask(number, keys) for number in range(20)] == [*range(20)]


def test_a_crowd_without_tls_keeps_no_member_out(serving: Serving) -> None:
    serving.server.use(PLAIN)
    with Crowd(serving.server.port, 1000):
        assert [serving.ask(number, PLAIN) for number in range(20)] == [*range(20)]


def test_members_that_are_too_many_at_once_wait_for_their_turn(serving: Serving) -> None:
    goes_on, arrived = threading.Event(), threading.Semaphore(0)

    def slow(connection: PeerConnection, request: dict[str, Any]) -> None:
        arrived.release()
        goes_on.wait(30)
        connection.reply(request)

    serving.handle = slow
    with ThreadPoolExecutor(50) as pool:
        answers = [pool.submit(serving.ask, number) for number in range(50)]
        for _ in range(16):
            assert arrived.acquire(timeout=30)
        goes_on.set()
        assert [answer.result() for answer in answers] == [*range(50)]


def test_a_member_whose_turn_comes_late_is_told_to_wait(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would give up, as for a server that hangs."""
    monkeypatch.setattr("pytorchjob_agent.system.port._PATIENCE_SECONDS", 0.05)
    goes_on = threading.Event()

    def slow(connection: PeerConnection, request: dict[str, Any]) -> None:
        goes_on.wait(30)
        connection.reply(request)

    serving.handle = slow
    with ThreadPoolExecutor(16) as pool:
        busy = [pool.submit(serving.ask, number) for number in range(16)]
        until(lambda: serving.server._port._free == 0)
        late = serving.connect()
        monkeypatch.setattr(late, "answer", dict)  # so that it only asks
        late.ask({"number": 16})
        assert late._sock.recv(1) == PATIENCE, "nobody has been served yet"
        monkeypatch.undo()
        goes_on.set()
        assert late.answer() == {"number": 16}
        late.close()
        assert [each.result() for each in busy] == [*range(16)]


def test_a_member_that_waits_for_its_turn_until_its_round_is_over_gets_no_answer(serving: Serving) -> None:
    goes_on, handled = threading.Event(), list[int]()

    def slow(connection: PeerConnection, request: dict[str, Any]) -> None:
        handled.append(request["number"])
        goes_on.wait(30)
        connection.reply(request)

    serving.handle = slow
    with ThreadPoolExecutor(17) as pool:
        busy = [pool.submit(serving.ask, number) for number in range(16)]
        until(lambda: len(handled) == 16)
        late = serving.connect()
        answer = pool.submit(late.ask, {"number": 16})
        until(lambda: serving.server._port._waiting)
        serving.server.use(draw(KEYS.secret))
        goes_on.set()
        with pytest.raises((PeerRefusedError, OSError)):
            answer.result()
        late.close()
        assert [each.result() for each in busy] == [*range(16)]
    assert 16 not in handled


def recorded(serving: Serving) -> tuple[bytes, bytes, bytes]:
    """The lines of one conversation without TLS, as the network shows them: of the server, the client, the server."""
    seen: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        with listener.accept()[0] as client, socket.create_connection(("127.0.0.1", serving.server.port)) as server:
            for source, target in ((server, client), (client, server), (server, client)):
                seen.append(source.makefile("rb").readline())
                target.sendall(seen[-1])

    thread = threading.Thread(target=pass_on)
    thread.start()
    connection = PeerConnection(socket.create_connection(listener.getsockname()), PLAIN.secret)
    assert connection.ask({"number": 7}) == {"number": 7}
    thread.join()
    connection.close()
    listener.close()
    greeting, request, answer = seen
    return greeting, request, answer


def test_what_a_member_has_sent_is_no_proof_on_another_connection(serving: Serving) -> None:
    serving.server.use(PLAIN)
    greeting, line, _ = recorded(serving)
    handled = list[dict[str, Any]]()
    serving.handle = lambda connection, request: handled.append(request)
    with socket.create_connection(("127.0.0.1", serving.server.port)) as sock:
        stream = sock.makefile("rb")
        assert stream.readline() != greeting
        sock.sendall(line)
        assert json.loads(stream.readline())["mac"] == ""
        assert stream.readline() == b""
    assert not handled


def test_what_a_server_has_answered_is_no_answer_on_another_connection(serving: Serving) -> None:
    """A pod in between repeats what it has seen on the network, the random text of the server too."""
    serving.server.use(PLAIN)
    greeting, _, answer = recorded(serving)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = PeerConnection(socket.create_connection(listener.getsockname()), PLAIN.secret)
        with listener.accept()[0] as sock:
            sock.sendall(greeting + answer)
            with pytest.raises(PeerRefusedError, match="does not know the secret"):
                client.ask({"number": 7})
        client.close()


@pytest.mark.parametrize("keys", [KEYS, PLAIN], ids=["tls", "plain"])
def test_without_a_secret_nobody_is_trusted(serving: Serving, keys: RoundKeys) -> None:
    """Neither a client that has none, nor a server that has none."""
    handled = list[dict[str, Any]]()
    serving.handle = lambda connection, request: handled.append(request)
    serving.server.use(replace(keys, secret=""))
    with pytest.raises(PeerRefusedError, match="does not know the secret"):
        serving.ask(keys=replace(keys, secret=""))
    assert not handled


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b"[" * 100_000 + b"\n", id="lists in lists"),
        pytest.param(b'{"nonce": "\\ud800", "request": "\\ud800", "mac": "\\ud800"}\n', id="halves of characters"),
        pytest.param(b'{"nonce": 1e999, "request": "{}", "mac": ""}\n', id="no number"),
        pytest.param(b"{}\n{}\n", id="two lines"),
        pytest.param(b"x" * 5_000_000, id="more than a request may have"),
    ],
)
def test_whatever_a_stranger_sends_members_are_served(serving: Serving, sent: bytes) -> None:
    serving.server.use(PLAIN)
    with socket.create_connection(("127.0.0.1", serving.server.port), timeout=30) as sock:
        sock.makefile("rb").readline()
        try:
            sock.sendall(sent)
            while sock.recv(4096):
                pass
        except OSError:
            pass
    assert serving.ask(3, PLAIN) == 3
