"""Serves the members of a round on a port: each request in a thread of its own, with the keys of the round."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pytorchjob_agent.saves.round_keys import RoundKeys
from pytorchjob_agent.saves.wire import CALL_SECONDS, Connection, PeerRefusedError
from pytorchjob_agent.system.console import say

_MOST_CONNECTIONS, _PAUSE = 16, 0.5

Handler = Callable[[Connection, dict[str, Any]], None]


class PeerServer:
    """Answers the requests of members that have the keys of the round."""

    def __init__(self, address: str, what: str, handle: Handler, refusals: tuple[type[Exception], ...] = ()) -> None:
        """Listen on a free port of the address. Raises OSError.

        `what` names the subject of requests in the log. `refusals`: errors of `handle` whose text the peer receives.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=64)
        self._what, self._handle = what, handle
        self._refusals: tuple[type[Exception], ...] = (PeerRefusedError, *refusals)
        self._keys, self._closed = RoundKeys(), False
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        threading.Thread(target=self._serve, name=what, daemon=True).start()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._listener.getsockname()[1])

    def use(self, keys: RoundKeys) -> None:
        """Serve the members of a new round, which have these keys; without a secret: no peer."""
        self._keys = keys

    def close(self) -> None:
        """Close the port."""
        self._keys, self._closed = RoundKeys(), True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_PAUSE)  # no descriptor is free now
                continue
            if not self._slots.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._answer, args=(sock,), name=self._what, daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        keys = self._keys
        try:
            sock.settimeout(CALL_SECONDS)
            self._converse(Connection(keys.as_server(sock), keys.secret))
        except (OSError, ValueError):
            pass  # the peer has other keys or is gone, or the pod's memory is full; the peer notices each
        finally:
            sock.close()
            self._slots.release()

    def _converse(self, connection: Connection) -> None:
        try:
            self._handle(connection, connection.greet())
        except self._refusals as error:
            say(f"a peer's request for {self._what} is refused: {error}")
            with suppress(OSError):
                connection.reply({"error": str(error)})
        finally:
            connection.close()
