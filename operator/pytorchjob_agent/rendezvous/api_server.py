"""Does the Kubernetes API server answer? So an operator that is down differs from a node that is cut off.

A connection is enough: the agent has no rights there, sends nothing and reads nothing.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
"""Kubernetes sets both in every container."""
_CONNECT_SECONDS = 2.0
_PAUSE = 5.0


class ApiServer:
    """The API server of the pod's cluster; outside of a cluster it never answers."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        """Read its address."""
        self._host, self._port = env.get(HOST, ""), env.get(PORT, "")
        self.answered_at = float("-inf")
        """When it last answered, in monotonic seconds."""
        self._tried_at = float("-inf")

    def check(self, now: float) -> None:
        """Connect, unless it was tried a moment ago; `now` in monotonic seconds."""
        if not self._host or not self._port.isdecimal() or now - self._tried_at < _PAUSE:
            return
        self._tried_at = now
        with suppress(OSError):
            socket.create_connection((self._host, int(self._port)), _CONNECT_SECONDS).close()
            self.answered_at = now
