"""The agent's port for Prometheus: its answers, and the clients that do not delay it."""

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pytorchjob_agent.system.metrics_server import MetricsServer


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


def test_a_client_that_asks_nothing_delays_the_next_scrape_and_no_more(server: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30):
        assert get(server, "/metrics") == "steps 7\n"


def test_its_port_is_free_once_it_is_closed() -> None:
    first = MetricsServer(0, lambda: "")
    with pytest.raises(OSError, match="in use"):
        MetricsServer(first.port, lambda: "")
    first.close()
    MetricsServer(first.port, lambda: "").close()
