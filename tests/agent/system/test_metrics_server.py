"""The agent's port for Prometheus: its answers, and the clients that do not delay it."""

import contextlib
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pytorchjob_agent.system.metrics_server import MetricsServer
from tests.agent.crowd import Crowd


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    started = MetricsServer(0, lambda: "steps 7\n")
    yield started
    started.close()


def get(server: MetricsServer, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def test_it_serves_the_text_again_and_again(server: MetricsServer) -> None:
    assert [get(server, "/metrics") for _ in range(3)] == ["steps 7\n"] * 3


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/metricsx"])
def test_it_serves_nothing_else(server: MetricsServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, path)


@pytest.mark.parametrize("sent", [b"", b"\x00" * 9000, b"POST /metrics HTTP/1.1\r\n\r\n", b"GET"])
def test_bytes_that_are_not_a_request_end_with_their_connection(server: MetricsServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client, contextlib.suppress(OSError):
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert b"steps" not in client.recv(4096)
    assert get(server, "/metrics") == "steps 7\n"


@pytest.mark.parametrize("addresses", [pytest.param(1, id="one address"), pytest.param(50, id="50 addresses")])
@pytest.mark.parametrize("size", [16, 1000])
def test_clients_that_ask_nothing_keep_no_scrape_out(server: MetricsServer, size: int, addresses: int) -> None:
    with Crowd(server.port, size, idle=True, addresses=addresses):
        assert [get(server, "/metrics") for _ in range(5)] == ["steps 7\n"] * 5


def test_a_request_may_come_in_pieces(server: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (b"GE", b"T /metr", b"ics HTTP/1.1\r\n\r\n"):
            client.sendall(piece)
            time.sleep(0.05)
        assert b"steps 7" in client.makefile("rb").read()


@pytest.mark.parametrize("text", ["half a character: \ud800\n", ValueError("a defect")], ids=str)
def test_whatever_the_text_is_the_next_scrape_is_answered(text: str | Exception) -> None:
    texts: list[str | Exception] = [text, "steps 8\n"]

    def scraped() -> str:
        found = texts.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    server = MetricsServer(0, scraped)
    with contextlib.suppress(urllib.error.HTTPError):
        get(server, "/metrics")
    assert get(server, "/metrics") == "steps 8\n"
    server.close()


def test_its_port_is_free_once_it_is_closed() -> None:
    first = MetricsServer(0, lambda: "")
    with pytest.raises(OSError, match="in use"):
        MetricsServer(first.port, lambda: "")
    first.close()
    MetricsServer(first.port, lambda: "").close()
