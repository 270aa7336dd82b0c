"""Serves the members of a round on a port: each request in a thread of its own, with the keys of the round."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pytorchjob_agent.exchange.round_keys import RoundKeys, member_of
from pytorchjob_agent.exchange.wire import (
    CALL_SECONDS,
    LINE_LIMIT,
    PATIENCE,
    Challenge,
    PeerConnection,
    PeerRefusedError,
)
from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.port import Entrance, NotAdmittedError, Port, Rules, Task

_BACKLOG = 4096

Handler = Callable[[PeerConnection, dict[str, Any]], None]


class PeerServer:
    """Answers the requests of members that have the keys of the round."""

    def __init__(self, address: str, what: str, handle: Handler, refusals: tuple[type[Exception], ...] = ()) -> None:
        """Listen on a free port of the address. Raises OSError.

        `what` names the subject of requests in the log. `refusals`: errors of `handle` whose text the peer receives.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=_BACKLOG)
        self.port = int(listener.getsockname()[1])
        """The port."""
        self._what, self._handle = what, handle
        self._refusals: tuple[type[Exception], ...] = (PeerRefusedError, *refusals)
        self.keys = RoundKeys()
        """Those of the round."""
        self._port = Port(listener, what, self._enter, Rules(CALL_SECONDS, LINE_LIMIT))

    def use(self, keys: RoundKeys) -> None:
        """Serve the members of a new round, which have these keys; without a secret: no peer."""
        self.keys = keys

    def close(self) -> None:
        """Close the port."""
        self.keys = RoundKeys()
        self._port.close()

    def _enter(self) -> Entrance:
        """Demand the proof of a new connection."""
        keys = self.keys
        challenge = Challenge(keys.secret)

        def read(data: bytearray) -> Task | None:
            if not data.endswith(b"\n"):
                return None
            try:
                request = challenge.request(bytes(data))
            except PeerRefusedError as error:
                raise NotAdmittedError(challenge.refusal(error)) from None
            return lambda sock: self._answer(sock, keys, challenge.nonces, request)

        return Entrance(read, keys.server_context(), challenge.line, PATIENCE)

    def _answer(self, sock: socket.socket, keys: RoundKeys, nonces: str, request: dict[str, Any]) -> None:
        if keys != self.keys:
            return  # it has waited for so long that its round is over
        connection = PeerConnection(sock, keys.secret, nonces)
        connection.sender = member_of(sock) if keys.certificate else None
        try:
            self._handle(connection, request)
        except self._refusals as error:
            say(f"a peer's request for {self._what} is refused: {error}")
            with suppress(OSError):
                connection.reply({"error": str(error)})
        except (OSError, ValueError, ArithmeticError):
            pass  # the peer is gone, or the pod's memory is full; the peer notices each
        finally:
            connection.close()
