"""Sources of a request's bearer token: none, a constant, or a file that rotates.

The client asks the source for every request, and the source caches. `fresh` means that the server has just refused the
last token.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pytorchjob_operator.errors import OperatorError

_FILE_MAX_AGE = 30.0
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
