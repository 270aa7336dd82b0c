"""Requests of Kubeflow Trainer's contract: what libraries post is understood, everything else is refused by name."""

import json
from typing import Any

import pytest

from pytorchjob_agent.script.observation import Observation
from pytorchjob_agent.script.status_request import (
    LONGEST_BODY,
    LONGEST_HEAD,
    RefusedRequest,
    StatusRequest,
    answer,
    path,
    read_request,
)

TOKEN = "s3cret"


def posted(status: object, *, target: str = path(0), token: str = TOKEN, head: str = "POST") -> bytes:
    """The bytes that Python's urllib sends, as Hugging Face's Trainer uses it."""
    body = status if isinstance(status, bytes) else json.dumps({"trainerStatus": status}).encode()
    lines = [
        f"{head} {target} HTTP/1.1",
        "Accept-Encoding: identity",
        f"Content-Length: {len(body)}",
        "Host: 127.0.0.1:40999",
        "User-Agent: Python-urllib/3.11",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def metrics(**values: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


TIME = "2026-11-22T19:10:05.123456+00:00"
BEGIN = {"lastUpdatedTime": TIME, "progressPercentage": 0, "metrics": metrics(total_steps=40)}
STEP = {
    "lastUpdatedTime": TIME,
    "progressPercentage": 50,
    "estimatedRemainingSeconds": 61,
    "metrics": metrics(
        loss=2.3026, grad_norm=0.5, learning_rate=5e-05, epoch=1.0, current_step=20, total_steps=40, current_epoch=1.0
    ),
}
END = {
    "lastUpdatedTime": TIME,
    "progressPercentage": 100,
    "estimatedRemainingSeconds": 0,
    "metrics": metrics(loss=2.1, train_loss=2.2, epoch=2.0),
}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(BEGIN, Observation(total=40, percent=0), id="training begins"),
        pytest.param(
            STEP,
            Observation(
                20,
                40,
                50,
                61,
                {"loss": 2.3026, "grad_norm": 0.5, "learning_rate": 5e-05, "epoch": 1.0, "current_epoch": 1.0},
            ),
            id="a step",
        ),
        pytest.param(
            END,
            Observation(percent=100, remaining=0, metrics={"loss": 2.1, "train_loss": 2.2, "epoch": 2.0}),
            id="the end",
        ),
        pytest.param({}, Observation(), id="nothing at all"),
        pytest.param({"progressPercentage": 12.7}, Observation(percent=12), id="half a percent"),
        pytest.param({"progressPercentage": None, "metrics": None}, Observation(), id="null is unset"),
        pytest.param(
            {
                "metrics": [
                    *metrics(loss="nan", a="inf", b="text", c="", d=1),
                    {},
                    5,
                    {"name": 5, "value": "1"},
                    {"name": "\ud800", "value": "1"},
                ]
            },
            Observation(metrics={"d": 1.0}),
            id="metrics that cannot be shown",
        ),
        pytest.param(
            {"metrics": metrics(**{"x" * 63: 1, "x" * 62: 2})}, Observation(metrics={"x" * 62: 2.0}), id="a long name"
        ),
        pytest.param(
            {"metrics": metrics(**{f"m{n}": n for n in range(300)})},
            Observation(metrics={f"m{n}": float(n) for n in range(16)}),
            id="too many metrics",
        ),
        pytest.param({"metrics": metrics(step=2.5, total_steps=-1)}, Observation(), id="steps that are no counts"),
        pytest.param({"metrics": metrics(current_step="1e400")}, Observation(), id="an endless step"),
        pytest.param({"metrics": metrics(current_step="9" * 5000)}, Observation(), id="a step of many digits"),
        pytest.param(
            {"metrics": [{"name": "loss", "value": float("nan")}, {"name": "a", "value": float("inf")}]},
            Observation(),
            id="numbers that JSON does not know",
        ),
    ],
)
def test_what_a_library_posts(status: dict[str, Any], expected: Observation) -> None:
    assert read_request(posted(status), TOKEN) == StatusRequest(0, expected)


def test_the_address_has_the_workers_local_rank() -> None:
    assert read_request(posted(STEP, target=f"{path(7)}?x=1"), TOKEN) == StatusRequest(7, read(STEP))


def read(status: dict[str, Any]) -> Observation:
    found = read_request(posted(status), TOKEN)
    assert found is not None
    return found.observation


def test_a_request_that_is_not_complete_is_waited_for() -> None:
    whole = posted(STEP)
    assert [read_request(whole[:length], TOKEN) for length in range(len(whole))] == [None] * len(whole)


def without(data: bytes, name: bytes) -> bytes:
    head, _, body = data.partition(b"\r\n\r\n")
    kept = [line for line in head.split(b"\r\n") if not line.startswith(name)]
    return b"\r\n".join(kept) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        pytest.param(posted(STEP, token="wrong"), 401, "bearer token", id="another token"),
        pytest.param(posted(STEP, token=""), 401, "bearer token", id="an empty token"),
        pytest.param(posted(STEP, token="s3cr\xe9t"), 401, "bearer token", id="a token in Latin"),
        pytest.param(without(posted(STEP), b"Authorization"), 401, "bearer token", id="no token"),
        pytest.param(posted(STEP, target="/"), 404, "KUBEFLOW_TRAINER_SERVER_URL", id="another address"),
        pytest.param(posted(STEP, target="/ranks/99999/status"), 404, "address", id="a rank that no pod has"),
        pytest.param(b"GET /ranks/0/status HTTP/1.1\r\n\r\n", 405, "POST", id="a browser"),
        pytest.param(posted(STEP, head="PUT"), 405, "POST", id="another method"),
        pytest.param(b"hello\r\n\r\n", 400, "not HTTP", id="something else"),
        pytest.param(b"\x16\x03\x01" * 9 + b"\r\n\r\n", 400, "not HTTP", id="TLS"),
        pytest.param(without(posted(STEP), b"Content-Length"), 411, "Content-Length", id="no length"),
        pytest.param(
            posted(STEP).replace(b"Content-Length: ", b"Content-Length: -"),
            411,
            "Content-Length",
            id="a length below 0",
        ),
        pytest.param(posted(b"x" * (LONGEST_BODY + 1)), 413, str(LONGEST_BODY), id="a long body"),
        pytest.param(b"POST / HTTP/1.1\r\nx: " + b"x" * LONGEST_HEAD, 431, str(LONGEST_HEAD), id="endless headers"),
        pytest.param(posted(b"{"), 400, "trainerStatus", id="half of JSON"),
        pytest.param(posted(b"[" * 60_000), 400, "trainerStatus", id="deep JSON"),
        pytest.param(posted(b"[]"), 400, "trainerStatus", id="a list"),
        pytest.param(posted(b"{}"), 400, "trainerStatus", id="no status"),
        pytest.param(posted([1]), 400, "trainerStatus", id="a status that is a list"),
        pytest.param(posted({"progressPercentage": 101}), 400, "progressPercentage", id="more than all"),
        pytest.param(posted({"progressPercentage": "50"}), 400, "progressPercentage", id="a text"),
        pytest.param(posted({"progressPercentage": True}), 400, "progressPercentage", id="a truth"),
        pytest.param(posted({"estimatedRemainingSeconds": -1}), 400, "estimatedRemainingSeconds", id="a time ago"),
        pytest.param(posted({"estimatedRemainingSeconds": 1e300}), 400, "estimatedRemainingSeconds", id="for ever"),
        pytest.param(posted({"metrics": {"loss": 1}}), 400, "metrics", id="metrics by name"),
    ],
)
def test_what_is_refused(data: bytes, status: int, words: str) -> None:
    with pytest.raises(RefusedRequest) as caught:
        read_request(data, TOKEN)
    assert caught.value.status == status
    assert words in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert answer(status, str(caught.value)).startswith(f"HTTP/1.1 {status} ".encode())
