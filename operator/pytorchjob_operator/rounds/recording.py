"""Records the inputs of decisions as lines of JSON, and replays them. Pure: text in, decisions out.

The first line names the format and its version. Each other line is one input of one job. A recording has no tokens.
`coordinator/recorder.py` writes such a file, and `pytorchjob-operator rounds --replay FILE` prints its decisions.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, assert_never

from pytorchjob_agent.contract.messages import Hello, ProtocolError, RoundId, read_from_agent
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.state import (
    AuthenticationFailed,
    ConnectionClosed,
    Decision,
    Input,
    JobState,
    JobSynced,
    MessageReceived,
    Tick,
)
from pytorchjob_operator.rounds.values import ExpectedPod, Policy

FORMAT, VERSION = "pytorchjob-rounds", 1


class RecordingError(ValueError):
    """A recording that cannot be replayed; the text has the line's number, the problem and the remedy."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision of a recording."""

    job: str
    at: float
    """Seconds of the recording coordinator's clock."""
    input: Input
    before: JobState
    decision: Decision


def header() -> str:
    """Return the first line of a recording."""
    return json.dumps({"format": FORMAT, "version": VERSION}) + "\n"


def line(job: str, state: JobState, input_: Input, now: float) -> str:
    """Return the line for one input, which `state` was about to receive."""
    new: dict[str, Any] = {"term": state.term} if state.checked_at == 0.0 else {}
    if new and state.finished_round is not None:
        new["after"] = astuple(state.finished_round)
    return json.dumps({"job": job, "at": now, **new, **_encode(input_)}, separators=(",", ":")) + "\n"


def replay(lines: Iterable[str]) -> Iterator[Replayed]:
    """Yield the decision about each input, from fresh states. Raises RecordingError."""
    states: dict[str, JobState] = {}
    for number, text in enumerate(lines, 1):
        try:
            item = json.loads(text)
            if number == 1:
                _check_header(item)
                continue
            job, now, input_ = str(item["job"]), float(item["at"]), _decode(item)
            if "term" in item:
                last = RoundId(*item["after"]) if "after" in item else None
                states[job] = JobState(_first_policy(input_), int(item["term"]), finished_round=last)
            before = states[job]
        except RecordingError:
            raise
        except ProtocolError as error:
            raise RecordingError(f"line {number}: the message is damaged: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise RecordingError(
                f"line {number}: {what[:200]}; the file is damaged or cut off: remove this line and the ones after it"
            ) from error
        decision = decide(before, input_, now)
        states[job] = decision.state
        yield Replayed(job, now, input_, before, decision)


def _check_header(item: Any) -> None:
    if not isinstance(item, dict) or item.get("format") != FORMAT:
        raise RecordingError("line 1: this is not a recording of rounds: expected a file that the operator recorded")
    if item.get("version") != VERSION:
        version = str(item.get("version"))[:20]
        raise RecordingError(
            f"line 1: version {version} of the format: this operator replays version {VERSION};"
            " use the operator that recorded it"
        )


def _first_policy(input_: Input) -> Policy:
    if not isinstance(input_, JobSynced):
        raise ValueError("the first input of a job must be a sync")
    return input_.policy


def _encode(input_: Input) -> dict[str, Any]:
    match input_:
        case MessageReceived(connection, index, message):
            safe = replace(message, token="") if isinstance(message, Hello) else message
            text = safe.to_line().decode().rstrip("\n")
            return {"input": "message", "connection": connection, "index": index, "line": text}
        case ConnectionClosed(connection, index):
            return {"input": "closed", "connection": connection, "index": index}
        case JobSynced(policy, pods, restarts, terminating, trained):
            return {
                "input": "sync",
                "restarts": restarts,
                "policy": asdict(policy),
                "pods": {str(index): asdict(pod) for index, pod in pods.items()},
                "terminating": {str(index): uid for index, uid in terminating.items()},
                "trained": trained,
            }
        case AuthenticationFailed(message, reason):
            return {"input": "authentication failed", "message": message, "reason": reason}
        case Tick():
            return {"input": "tick"}
    assert_never(input_)


def _decode(item: dict[str, Any]) -> Input:
    match item["input"]:
        case "message":
            return MessageReceived(item["connection"], item["index"], read_from_agent(item["line"].encode()))
        case "closed":
            return ConnectionClosed(item["connection"], item["index"])
        case "sync":
            pods = {int(index): ExpectedPod(**pod) for index, pod in item["pods"].items()}
            terminating = {int(index): str(uid) for index, uid in item.get("terminating", {}).items()}
            restarts, trained = int(item.get("restarts", 0)), item.get("trained") is True
            return JobSynced(Policy(**item["policy"]), pods, restarts, terminating, trained)
        case "authentication failed":
            return AuthenticationFailed(str(item["message"]), TrainingReason(item["reason"]))
        case "tick":
            return Tick()
        case other:
            raise ValueError(f"unknown input {str(other)[:40]!r}")
