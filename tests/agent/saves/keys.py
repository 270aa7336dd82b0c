"""The keys of a round, as the coordinator draws them, and the server's side of a conversation."""

import socket
from datetime import UTC, datetime
from typing import Any

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import Challenge, PeerConnection
from pytorchjob_operator.kube import certificate


def draw(secret: str) -> RoundKeys:
    """Keys of a member with a certificate that no other round has."""
    return members(secret, 1)[0]


def members(secret: str, count: int, round_: RoundId | None = None) -> list[RoundKeys]:
    """The keys of all members of a round."""
    texts = certificate.make_for_members(datetime.now(UTC), count)  # noqa: TID251 - they are verified now
    return [RoundKeys(secret, text, round_, rank) for rank, text in enumerate(texts)]


KEYS = draw("secret")


def as_server(keys: RoundKeys, sock: socket.socket) -> socket.socket:
    """The connection to use after `accept`."""
    context = keys.server_context()
    return sock if context is None else context.wrap_socket(sock, server_side=True)


def greet(keys: RoundKeys, sock: socket.socket) -> tuple[PeerConnection, dict[str, Any]]:
    """The server's side of a new connection, and the request of its client."""
    challenge, sock = Challenge(keys.secret), as_server(keys, sock)
    sock.sendall(challenge.line)
    line = b""
    while not line.endswith(b"\n"):
        line += sock.recv(65_536)
    request = challenge.request(line)
    return PeerConnection(sock, keys.secret, challenge.nonces), request
