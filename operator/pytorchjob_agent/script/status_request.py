"""One request of Kubeflow Trainer's progress contract: from its bytes to an observation, or to a refusal. Pure.

A library that supports the contract posts to the address in `KUBEFLOW_TRAINER_SERVER_URL`, with the content of the file
that `KUBEFLOW_TRAINER_SERVER_TOKEN` names as bearer token. Hugging Face's Trainer (transformers 5) and Kubeflow's SDK
do. The body is `{"trainerStatus": {"progressPercentage": 42, "estimatedRemainingSeconds": 60, "metrics": [{"name":
"loss", "value": "0.5"}]}}`, with each field optional; values of metrics are texts. `status_server` is the server.
"""

import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pytorchjob_agent.script.observation import Observation
from pytorchjob_agent.script.progress_file import LONGEST_NAME, MOST_METRICS

SERVER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
TOKEN_FILE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
LONGEST_HEAD = 16 * 1024
LONGEST_BODY = 64 * 1024
_MOST_READ = 256  # metrics of one request, as in Kubeflow's own server
_LARGEST = 2**53 - 1
_PATH = re.compile(r"/ranks/(\d{1,4})/status")
_STEP, _TOTAL = ("current_step", "global_step", "step"), ("total_steps", "max_steps")
_TEXTS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
}


class RefusedRequest(ValueError):  # noqa: N818 - a refusal is an answer
    """The request gets this status; the text is the reason."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """A request that is complete and has the right token."""

    local_rank: int
    observation: Observation


def path(local_rank: int) -> str:
    """Return the path of the address to which a worker posts."""
    return f"/ranks/{local_rank}/status"


def is_path(text: str) -> bool:
    """Return whether an agent serves this path."""
    return _PATH.fullmatch(text) is not None


def read_request(data: bytes, token: str) -> StatusRequest | None:
    """Read what a connection has sent so far; None: the rest is still missing. Raises RefusedRequest."""
    head, end, body = data.partition(b"\r\n\r\n")
    if len(head) > LONGEST_HEAD:
        raise RefusedRequest(431, f"the headers are longer than {LONGEST_HEAD} bytes")
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = _length(headers.get("content-length"), first)
    if len(body) < length:
        return None
    local_rank = _target(first)
    given = headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise RefusedRequest(401, "the bearer token is not the one in the token file")
    return StatusRequest(local_rank, _observation(body[:length]))


def answer(status: int, message: str = "") -> bytes:
    """Return the bytes of an answer; the server closes the connection after it."""
    body = json.dumps({"message": message} if message else {}).encode()
    head = f"HTTP/1.1 {status} {_TEXTS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def _length(text: str | None, first: str) -> int:
    """Return the length of the body; a request that can have no body has none."""
    if text is None and not first.startswith("POST "):
        return 0
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RefusedRequest(411, "Content-Length is missing or not a number")
    if int(text) > LONGEST_BODY:
        raise RefusedRequest(413, f"the body is longer than {LONGEST_BODY} bytes")
    return int(text)


def _target(first: str) -> int:
    """Return the local rank that the address names."""
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise RefusedRequest(400, "the request is not HTTP/1.1")
    found = _PATH.fullmatch(parts[1].partition("?")[0])
    if found is None:
        raise RefusedRequest(404, f"only the address in {SERVER_URL} is served")
    if parts[0] != "POST":
        raise RefusedRequest(405, "only POST is served")
    return int(found[1])


def _observation(body: bytes) -> Observation:
    try:
        status = json.loads(body)["trainerStatus"]
    except (ValueError, RecursionError, KeyError, TypeError):
        status = None
    if not isinstance(status, dict):
        raise RefusedRequest(400, 'the body is not {"trainerStatus": {...}}')
    metrics = dict(_metrics(status.get("metrics")))
    step, total = _whole(metrics, _STEP), _whole(metrics, _TOTAL)
    shown = {name: value for name, value in metrics.items() if name not in (*_STEP, *_TOTAL)}
    return Observation(
        step=step,
        total=total,
        percent=_number(status, "progressPercentage", 100),
        remaining=_number(status, "estimatedRemainingSeconds", _LARGEST),
        metrics=dict([*shown.items()][:MOST_METRICS]),
    )


def _number(status: dict[str, Any], name: str, most: int) -> int | None:
    value = status.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise RefusedRequest(400, f"trainerStatus.{name} is not a number from 0 to {most}")
    return int(value)


def _metrics(given: Any) -> Iterator[tuple[str, float]]:
    """Yield the metrics that are finite numbers; others are dropped, as the status cannot show them."""
    if not isinstance(given, list | None):
        raise RefusedRequest(400, "trainerStatus.metrics is not a list")
    for metric in (given or ())[:_MOST_READ]:
        name, value = (metric.get("name"), metric.get("value")) if isinstance(metric, dict) else (None, None)
        if not isinstance(name, str) or not name or len(json.dumps(name)) > LONGEST_NAME:
            continue
        try:
            name.encode()  # JSON may have halves of characters, which no reader of metrics takes
            number = float(value)  # type: ignore[arg-type]
        except (ValueError, TypeError, OverflowError):
            continue
        if isfinite(number):
            yield name, number


def _whole(metrics: dict[str, float], names: tuple[str, ...]) -> int | None:
    """Return the first of these metrics that is a count."""
    found = (metrics[name] for name in names if name in metrics)
    return next((int(value) for value in found if value == int(value) and 0 <= value <= _LARGEST), None)
