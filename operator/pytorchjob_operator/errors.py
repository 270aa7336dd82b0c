"""Every error that crosses a package border, and the one table of what an API server's status codes mean.

    OperatorError
    ├── InvalidJob              the job's own text is wrong: names every field
    └── ApiError                the API server said no, or nothing
        ├── NotFound            404: the object is not there
        ├── Conflict            409: `already_exists`, or somebody else wrote first
        ├── Refused             the server will not take this request: its words belong before the user
        └── Unavailable         no answer, too busy, broken, credentials stale: the same request may pass later

It sends nothing and retries nothing.
"""

# ruff: noqa: N818 -- `except NotFound` reads better than `except NotFoundError`

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_MAX_MESSAGE = 4096


class OperatorError(Exception):
    """Root of all errors that this operator raises on purpose."""


class Problem(NamedTuple):
    """One thing that is wrong with a job: where, and what would be right."""

    field: str
    message: str


class InvalidJob(OperatorError):
    """A job that cannot be accepted; it carries all of its problems, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = (f"{one.field}: {one.message}" if one.field else one.message for one in self.problems)
        super().__init__("\n".join(lines))


class ApiError(OperatorError):
    """What the API server answered instead of the object; status 0 means that it did not answer."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = message.strip()[:_MAX_MESSAGE]
        self.retry_after = retry_after
        super().__init__(f"{reason} ({status}): {self.message}" if status else f"{reason}: {self.message}")

    @property
    def expired(self) -> bool:
        """The history that was asked for is gone: only a new list helps."""
        return self.status == 410


class NotFound(ApiError):
    """The object, its namespace, or its kind does not exist."""


class Conflict(ApiError):
    """A precondition failed: the name is taken, the uid or the resourceVersion is another."""

    @property
    def already_exists(self) -> bool:
        """The name is taken; otherwise somebody else wrote first."""
        return self.reason == "AlreadyExists"


class Refused(ApiError):
    """Invalid, forbidden, over quota: repeating it unchanged is of little use."""


class Unavailable(ApiError):
    """Nothing is known about the request's fate: it may have been carried out."""


def from_response(status: int, body: Any, headers: Mapping[str, str] | None = None) -> ApiError:
    """Turn a reply, or the Status object of a watch's ERROR event, into the error that it means."""
    answer = body if isinstance(body, dict) else {}
    text = str(answer.get("message") or (body if isinstance(body, str) else "") or "no message from the server")
    reason = str(answer.get("reason") or f"HTTP{status}")
    return _kind(status)(status, reason, text, _retry_after(answer, headers or {}))


def _kind(status: int) -> type[ApiError]:
    if status in (401, 408, 429) or status >= 500:
        return Unavailable
    if status == 410:
        return ApiError
    return {404: NotFound, 409: Conflict}.get(status, Refused)


def _retry_after(answer: dict[str, Any], headers: Mapping[str, str]) -> float | None:
    details = answer.get("details")
    asked = headers.get("Retry-After") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        return float(asked) if asked else None
    except (TypeError, ValueError):
        return None  # a date is allowed too; API servers do not send one
