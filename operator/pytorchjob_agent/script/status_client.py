"""Posts a worker's progress to the server of its agent (`status_server`), as a library does that knows the contract."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pytorchjob_agent.script.status_request import SERVER_URL, TOKEN_FILE, is_path
from pytorchjob_agent.system.ports import LOOPBACK

_SECONDS = 2.0
"""How long an answer may take: the training waits for it."""


@dataclass(frozen=True, slots=True)
class StatusClient:
    """The address of the agent's server, and the token that it accepts."""

    port: int
    path: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Self | None:
        """Return the client for a worker with these variables; None if they name no server of an agent.

        Raises OSError if the token cannot be read.
        """
        url = urlsplit(env.get(SERVER_URL, ""))
        if url.hostname != LOOPBACK or url.port is None or not is_path(url.path):
            return None
        return cls(url.port, url.path, Path(env[TOKEN_FILE]).read_text())

    def post(self, status: Mapping[str, Any]) -> None:
        """Send one status, whether or not the server accepts it. Raises OSError without a server."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with closing(HTTPConnection(LOOPBACK, self.port, timeout=_SECONDS)) as connection:  # no proxy
            connection.request("POST", self.path, json.dumps({"trainerStatus": status}), headers)
            connection.getresponse().read()
