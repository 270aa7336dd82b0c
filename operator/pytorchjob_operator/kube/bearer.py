"""Sources of a request's bearer token: none, a constant, a file that rotates, or a command.

The client asks the source for every request, and the source caches. `fresh` means that the server has just refused the
last token.
"""

import asyncio
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pytorchjob_operator.errors import OperatorError

_FILE_MAX_AGE = 30.0
_COMMAND_TIMEOUT = 60.0
_COMMAND_MAX_AGE = 300.0
"""How long a token is used whose expiry the command does not state, in seconds."""
_EXPIRY_MARGIN = 10.0
"""Seconds before its expiry at which a token is replaced: a request takes time."""
_MAX_TOKEN = 256 * 1024


class TokenSource(Protocol):
    """Returns the token to send now; with None the request carries no token."""

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the token; with `fresh` a new one wherever the source can give one. Raises OperatorError."""


@dataclass(slots=True)
class FixedToken:
    """A token that never changes, or None for client certificates."""

    token: str | None = field(default=None, repr=False)

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the same token each time."""
        return self.token


@dataclass(slots=True)
class FileToken:
    """A token in a file that the kubelet replaces before it expires."""

    path: Path
    _token: str | None = field(default=None, repr=False)
    _until: float = field(default=0.0, repr=False)

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the content of the file, at most half a minute old."""
        now = asyncio.get_running_loop().time()
        if fresh or self._token is None or now >= self._until:
            self._token = self._read()
            self._until = now + _FILE_MAX_AGE
        return self._token

    def _read(self) -> str:
        try:
            with self.path.open(encoding="utf-8") as file:
                return file.read(_MAX_TOKEN).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OperatorError(f"token file {self.path}: cannot be read: {error}") from error


@dataclass(slots=True)
class CommandToken:
    """A token printed by a credential plugin (`user.exec` of a kubeconfig)."""

    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict, repr=False)
    _token: str | None = field(default=None, repr=False)
    _until: float = field(default=0.0, repr=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return what the command printed, until that expires; one run serves all waiting requests."""
        refused = self._token if fresh else None
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._token is None or self._token == refused or now >= self._until:
                self._token, lasting = _token_of(await self._run(), self.command[0])
                self._until = now + lasting
            return self._token

    async def _run(self) -> bytes:
        name = self.command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                env={**os.environ, **self.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise OperatorError(
                f"kubeconfig, user.exec.command {name}: cannot be started: {error}; install it or correct the path"
            ) from error
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT):
                printed, _ = await process.communicate()
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise OperatorError(
                f"kubeconfig, user.exec.command {name}: printed no token within {_COMMAND_TIMEOUT:.0f} s"
            ) from error
        if process.returncode:
            raise OperatorError(f"kubeconfig, user.exec.command {name}: exited with {process.returncode}")
        return printed


def _token_of(printed: bytes, name: str) -> tuple[str, float]:
    """Return the token, and the seconds for which it may be used."""
    try:
        status: Any = json.loads(printed)["status"]
        token = status["token"]
    except (ValueError, KeyError, TypeError) as error:
        raise OperatorError(
            f"kubeconfig, user.exec.command {name}: did not print an ExecCredential with status.token "
            "(plugins that return client certificates are not supported)"
        ) from error
    return str(token), _lasting(status.get("expirationTimestamp"), name)


def _lasting(expires: object, name: str) -> float:
    if expires is None:
        return _COMMAND_MAX_AGE
    try:
        moment = datetime.fromisoformat(str(expires))
        return (moment - datetime.now(UTC)).total_seconds() - _EXPIRY_MARGIN
    except (ValueError, TypeError) as error:
        raise OperatorError(
            f"kubeconfig, user.exec.command {name}: status.expirationTimestamp {str(expires)[:100]!r} is not a time"
            " with a zone, such as 2026-01-01T12:00:00Z"
        ) from error
