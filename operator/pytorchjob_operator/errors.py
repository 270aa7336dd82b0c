"""Every error that crosses a package border, and the one table of what an API server's status codes mean.

    OperatorError
    ├── InvalidJob              the job's own text is wrong: names every field
    ├── CannotRun               this machine cannot run the job (`pytorchjob run`)
    └── ApiError                the API server did not do what was requested
        ├── NotFound            404: the object does not exist
        ├── Conflict            409: `already_exists`, or another client wrote first
        ├── Expired             410: the watch history is gone; list again (kube/reflector.py)
        ├── RequestRefused      403 and the like: the user must read the server's message (control/apply.py)
        │   └── Leftover        the name belongs to a child of a deleted job, which goes by itself
        └── Unavailable         401, 408, 429, 5xx, no response: the same request may succeed later

This module sends nothing and retries nothing.
"""

# ruff: noqa: N818 -- `except NotFound` reads better than `except NotFoundError`

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_MAX_MESSAGE = 4096


class PyTorchJobError(Exception):
    """What the client, the command line and the operator raise for a reason that a person can act on."""


class OperatorError(PyTorchJobError):
    """Root of all errors that this operator raises on purpose."""


class Problem(NamedTuple):
    """One error in a job: the field, what is wrong with it, and how to correct it."""

    field: str
    message: str


class InvalidJob(OperatorError):
    """The job cannot be accepted; the error carries all problems, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = (f"{field}: {message}" if field else message for field, message in self.problems)
        super().__init__("\n".join(lines))


class CannotRun(OperatorError):
    """A local run cannot begin, because this machine refuses a folder, a port or a process; names it and the reason."""


class ApiError(OperatorError):
    """What the API server returned instead of the object; status 0 means that it did not respond."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = message.strip()[:_MAX_MESSAGE]
        self.retry_after = retry_after
        super().__init__(f"{reason} ({status}): {self.message}" if status else f"{reason}: {self.message}")


class NotFound(ApiError):
    """The object, its namespace, or its kind does not exist."""


class Conflict(ApiError):
    """A precondition failed: the name is taken, or the uid or the resourceVersion differs."""

    @property
    def already_exists(self) -> bool:
        """True if the name is taken; False if another client wrote first."""
        return self.reason == "AlreadyExists"


class Expired(ApiError):
    """HTTP 410: the server no longer has the requested resourceVersion; only a new list helps."""


class RequestRefused(ApiError):
    """Invalid, forbidden or over quota: the same request would fail again."""


class Leftover(RequestRefused):
    """The name belongs to a child of a deleted job of the same name: the request succeeds once the child is gone."""


class Unavailable(ApiError):
    """The outcome of the request is unknown: the server may have carried it out."""


def from_response(status: int, body: Any, headers: Mapping[str, str] | None = None) -> ApiError:
    """Convert a response, or the Status object of a watch's ERROR event, into the matching error."""
    answer = body if isinstance(body, dict) else {}
    text = str(answer.get("message") or (body if isinstance(body, str) else "") or "no message from the server")
    reason = str(answer.get("reason") or f"HTTP{status}")
    return _kind(status)(status, reason, text, _retry_after(answer, headers or {}))


def _kind(status: int) -> type[ApiError]:
    if status in (401, 408, 429) or status >= 500:
        return Unavailable
    return {404: NotFound, 409: Conflict, 410: Expired}.get(status, RequestRefused)


def _retry_after(answer: dict[str, Any], headers: Mapping[str, str]) -> float | None:
    details = answer.get("details")
    asked = headers.get("Retry-After") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        return float(asked) if asked else None
    except (TypeError, ValueError):
        return None  # HTTP also allows a date here; API servers do not send one
