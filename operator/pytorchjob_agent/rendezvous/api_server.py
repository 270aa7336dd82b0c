"""Does the Kubernetes API server answer? So an operator that is down differs from a node that is cut off.

Only the status 200 of GET /readyz counts, from a server that has proved by TLS to be the cluster's. Whatever else
listens at the address proves nothing. A server without its etcd answers 500: it can renew no node's lease. It answers
401 or 403 without asking its etcd, so these prove nothing either.
"""

import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.system.background import Call

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
"""Kubernetes sets both in every container."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Kubernetes mounts the pod's own account there, unless the pod does without."""
_CA, _TOKEN = "ca.crt", "token"
_SECONDS = 2.0
"""For each step: a connection, TLS, and a part of the answer."""
_PAUSE = 5.0
_READY = b"HTTP/1.1 200 "
_LONGEST_TOKEN = 16 * 1024


class ApiServer:
    """The API server of the pod's cluster; outside of a cluster it never answers."""

    def __init__(
        self, authorities: Sequence[Path], env: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT
    ) -> None:
        """Read its address. `authorities`: files with the cluster's certificates; the first that exists counts."""
        self._host, self._port, self._account = env.get(HOST, "").strip("[]"), env.get(PORT, ""), account
        self._authorities = (*authorities, account / _CA)
        self.answered_at = float("-inf")
        """When it was last asked and was ready, in monotonic seconds."""
        self._tried_at = float("-inf")
        self._asking: Call[None] | None = None

    def check(self, now: float) -> None:
        """Ask it, unless it was asked a moment ago; `now` in monotonic seconds. It waits for no answer."""
        if not self._host or not self._port.isdecimal() or now - self._tried_at < _PAUSE:
            return
        if self._asking is None or self._asking.is_done:
            self._tried_at = now
            self._asking = Call(lambda: self._ask(now), "the API server")

    def _ask(self, now: float) -> None:
        with suppress(OSError, ValueError):
            if self._is_ready():
                self.answered_at = now

    def _is_ready(self) -> bool:
        """Return whether it answers that it is ready. Raises OSError and ValueError."""
        context = self._context()
        with (
            socket.create_connection((self._host, int(self._port)), _SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=self._host) as sock,
            sock.makefile("rb") as answer,
        ):
            sock.sendall(self._request())
            return answer.read(len(_READY)) == _READY

    def _context(self) -> ssl.SSLContext:
        """Trust the cluster's certificates alone. Raises OSError: there are none."""
        file = next((file for file in self._authorities if file.is_file()), self._authorities[-1])
        context = ssl.create_default_context(cafile=file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of older clusters lack what it asks for
        return context

    def _request(self) -> bytes:
        """Return the request, with the pod's own token if there is one: some clusters answer nobody else."""
        token = ""
        with suppress(OSError, ValueError), (self._account / _TOKEN).open(encoding="ascii") as file:
            token = file.read(_LONGEST_TOKEN).strip()
        who = f"Authorization: Bearer {token}\r\n" if token.isprintable() and token else ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"GET /readyz HTTP/1.1\r\nHost: {host}\r\n{who}Connection: close\r\n\r\n".encode("ascii")
