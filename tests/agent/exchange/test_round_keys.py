"""Connections with the keys of a round: the certificate is read once, and each connection proves it again."""

import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_agent.exchange.round_keys import RoundKeys
from tests.agent.saves.keys import KEYS, as_server, draw

Client = Callable[[socket.socket], socket.socket]


@contextmanager
def connected(keys: RoundKeys, client: Client | None = None) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Both ends of a connection that has carried data both ways. Raises OSError as the client has it."""
    near, far = socket.socketpair()
    with near, far, ThreadPoolExecutor(1) as pool:
        server = pool.submit(as_server, keys, far)
        with (client or keys.as_client)(near) as ours, server.result() as theirs:
            assert isinstance(ours, ssl.SSLSocket)
            assert isinstance(theirs, ssl.SSLSocket)
            for source, target in ((ours, theirs), (theirs, ours)):
                source.send(b"x")
                assert target.recv(1) == b"x"
            yield ours, theirs


def contexts(keys: RoundKeys) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What both ends of a connection have read from the certificate."""
    with connected(keys) as (client, server):
        return client.context, server.context


def test_connections_of_a_round_share_what_is_read_from_the_certificate() -> None:
    """Other objects with the same keys too: each part of the agent makes its own."""
    assert len({contexts(replace(KEYS)) for _ in range(3)}) == 1


def test_connections_at_the_same_time_share_it() -> None:
    keys = draw("secret")
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: contexts(keys), range(8)))) == 1


def test_a_round_uses_nothing_of_the_round_before() -> None:
    before, after = contexts(KEYS), contexts(draw(KEYS.secret))
    assert all(old is not new for old, new in zip(before, after, strict=True))


def own_client(version: ssl.TLSVersion) -> ssl.SSLContext:
    """What a peer uses that has the certificate, and more in mind than our client."""
    context = ssl.create_default_context(cadata=KEYS.certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.maximum_version = version
    return context


def test_who_has_no_certificate_of_a_member_is_sent_away() -> None:
    context = own_client(ssl.TLSVersion.TLSv1_3)
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        connected(KEYS, lambda sock: context.wrap_socket(sock, server_hostname=SERVER_NAME)),
    ):
        pass


def test_a_peer_resumes_no_session(tmp_path: Path) -> None:
    context = own_client(ssl.TLSVersion.TLSv1_3)
    (tmp_path / "member.pem").write_text(KEYS.certificate)
    context.load_cert_chain(tmp_path / "member.pem")
    with connected(KEYS, lambda sock: context.wrap_socket(sock, server_hostname=SERVER_NAME)) as (client, _):
        session = client.session
    assert session is not None

    def again(sock: socket.socket) -> socket.socket:
        return context.wrap_socket(sock, server_hostname=SERVER_NAME, session=session)

    with connected(KEYS, again) as (client, _):
        assert not client.session_reused


def test_a_peer_cannot_choose_a_version_of_tls_that_resumes() -> None:
    context = own_client(ssl.TLSVersion.TLSv1_2)
    with (
        pytest.raises(ssl.SSLError),
        connected(KEYS, lambda sock: context.wrap_socket(sock, server_hostname=SERVER_NAME)),
    ):
        pass
