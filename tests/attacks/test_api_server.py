"""An attacker, or a defect, answers at the address of the API server. It wants the workers of a group that is cut off
to train on beside their replacements: it must not count as the control plane.
"""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.readyz import Answer, Asking, Authority, endpoint, says
from tests.waiting import until

pytestmark = pytest.mark.without_bystander("it attacks one agent's view")
Serving = Callable[[Authority, Path], ssl.SSLContext | None]


def _genuine(authority: Authority, folder: Path) -> ssl.SSLContext:
    return authority.context(folder, "127.0.0.1")


def _kubelet(authority: Authority, folder: Path) -> ssl.SSLContext:
    return authority.context(folder, "node-1")


def _stranger(_: Authority, folder: Path) -> ssl.SSLContext:
    return Authority().context(folder, "127.0.0.1")


def _plain(_: Authority, __: Path) -> None:
    """No TLS."""


def _silent(sock: socket.socket, _: bytes) -> None:
    sock.recv(1)


def _redirect(sock: socket.socket, _: bytes) -> None:
    sock.sendall(b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/readyz\r\n\r\n")


@pytest.mark.parametrize(
    ("serving", "answer"),
    [
        pytest.param(_plain, _silent, id="a listener that accepts"),
        pytest.param(_plain, says("200 OK"), id="a proxy that answers without TLS"),
        pytest.param(_stranger, says("200 OK"), id="a server of another authority"),
        pytest.param(_kubelet, says("200 OK"), id="a node with a certificate of the cluster"),
        pytest.param(_genuine, _silent, id="a server that hangs"),
        pytest.param(_genuine, lambda sock, _: None, id="a server that hangs up"),
        pytest.param(_genuine, lambda sock, _: sock.sendall(b"HTTP/1.1 200"), id="half an answer"),
        pytest.param(_genuine, says("500 Internal Server Error"), id="a server without its etcd"),
        pytest.param(_genuine, says("503 Service Unavailable"), id="a server that ends"),
        pytest.param(_genuine, says("401 Unauthorized"), id="a server that knows nobody: it has not asked its etcd"),
        pytest.param(_genuine, says("403 Forbidden"), id="a server that refuses: it has not asked its etcd"),
        pytest.param(_genuine, _redirect, id="a server that sends the agent elsewhere"),
    ],
)
def test_what_keeps_no_fence_open(tmp_path: Path, serving: Serving, answer: Answer) -> None:
    authority = Authority()
    with endpoint(answer, serving(authority, tmp_path)) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(authority.pem)
        (agent.account / "token").write_text("secret")
        assert agent.at(100.0) == float("-inf")


def test_a_stranger_at_the_address_gets_no_token(tmp_path: Path) -> None:
    heard = list[bytes]()

    def listen(sock: socket.socket, first: bytes) -> None:
        heard.append(first + sock.recv(4096))

    with endpoint(listen, None) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(Authority().pem)
        (agent.account / "token").write_text("t0ken")
        agent.at(100.0)
        until(lambda: heard)  # the agent gives up before a slow listener has read
    assert b"t0ken" not in b"".join(heard)


@pytest.mark.parametrize("content", [b"", b"no certificate", b"\xff\x00"], ids=["empty", "a text", "no text"])
def test_authorities_that_cannot_be_read_trust_nobody(tmp_path: Path, content: bytes) -> None:
    with endpoint(says("200 OK"), Authority().context(tmp_path, "127.0.0.1")) as port:
        agent = Asking(tmp_path, "127.0.0.1", port)
        agent.authorities.write_bytes(content)
        assert agent.at(100.0) == float("-inf")
