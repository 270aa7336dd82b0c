"""The one table of what status codes mean."""

import pytest

from pytorchjob_operator import errors
from pytorchjob_operator.errors import ApiError, Conflict, Expired, NotFound, RequestRefused, Unavailable


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(400, RequestRefused, id="a bad request is refused"),
        pytest.param(401, Unavailable, id="stale credentials may be fresh in a moment"),
        pytest.param(403, RequestRefused, id="quota, Pod Security and RBAC refuse"),
        pytest.param(404, NotFound, id="not found"),
        pytest.param(409, Conflict, id="conflict"),
        pytest.param(410, Expired, id="the history is gone: only a new list helps"),
        pytest.param(413, RequestRefused, id="an object too large is refused"),
        pytest.param(422, RequestRefused, id="an invalid object is refused"),
        pytest.param(429, Unavailable, id="too many requests may pass later"),
        pytest.param(500, Unavailable, id="a broken webhook may be mended"),
        pytest.param(504, Unavailable, id="a gateway's timeout leaves the request's outcome open"),
    ],
)
def test_a_status_means(status: int, kind: type[ApiError]) -> None:
    error = errors.from_response(status, {"reason": "Why", "message": "the server's words"})
    assert (type(error), error.status, error.reason, error.message) == (kind, status, "Why", "the server's words")


@pytest.mark.parametrize(
    ("body", "headers", "seconds"),
    [
        pytest.param({}, {"Retry-After": "7"}, 7.0, id="from the header"),
        pytest.param({"details": {"retryAfterSeconds": 3}}, {}, 3.0, id="from the details"),
        pytest.param({}, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, None, id="a date is not understood"),
        pytest.param("plain text", {}, None, id="a body that is no Status"),
        pytest.param({"details": None}, {}, None, id="details that are null"),
    ],
)
def test_the_server_asks_to_wait(body: object, headers: dict[str, str], seconds: float | None) -> None:
    assert errors.from_response(429, body, headers).retry_after == seconds


def test_a_taken_name_is_told_from_a_lost_race() -> None:
    taken, raced = (errors.from_response(409, {"reason": reason}) for reason in ("AlreadyExists", "Conflict"))
    assert (taken.already_exists, raced.already_exists) == (True, False)  # type: ignore[attr-defined]


def test_a_message_without_end_is_cut() -> None:
    assert len(errors.from_response(500, {"message": "x" * 100_000}).message) == 4096


def test_an_invalid_job_lists_all_of_its_problems() -> None:
    error = errors.InvalidJob([errors.Problem("spec.a", "must be 1"), errors.Problem("", "no kind")])
    assert str(error) == "spec.a: must be 1\nno kind"
