"""What the state of pods shows about their logs."""

from typing import Any

import pytest

from pytorchjob.logs.containers import LogPhase, LogState, container_names, log_state, short_name
from pytorchjob.logs.ending import DRAIN_SECONDS, SETTLE_SECONDS, EndOfJob

STARTED = {"startedAt": "1970-01-01T00:00:07Z"}
SEVEN = 7_000_000_000


def pod(
    state: dict[str, Any] | None = None, *, phase: str = "Running", policy: str = "Never", **status: Any
) -> dict[str, Any]:
    found = [{"name": "pytorch", "state": state, **status}] if state is not None else []
    return {
        "metadata": {"name": "digits-worker-1"},
        "spec": {"containers": [{"name": "pytorch"}], "restartPolicy": policy, "nodeName": "n"},
        "status": {"phase": phase, "containerStatuses": found},
    }


RUNNING = {"running": STARTED}
FAILED, DONE = {"terminated": {**STARTED, "exitCode": 1}}, {"terminated": {**STARTED, "exitCode": 0}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("given", "state"),
    [
        pytest.param(pod(), LogState(LogPhase.NOT_STARTED, reason="starting"), id="no status yet"),
        pytest.param(
            pod({"waiting": {"reason": "ImagePullBackOff"}}),
            LogState(LogPhase.NOT_STARTED, reason="ImagePullBackOff"),
            id="its image is missing",
        ),
        pytest.param(pod(RUNNING, restartCount=2), LogState(LogPhase.OPEN, 2, SEVEN), id="running, restarted twice"),
        pytest.param(pod(FAILED, policy="Always"), LogState(LogPhase.OPEN, 0, SEVEN), id="about to restart"),
        pytest.param(pod(FAILED, policy="OnFailure"), LogState(LogPhase.OPEN, 0, SEVEN), id="about to, OnFailure"),
        pytest.param(pod(DONE, policy="OnFailure"), LogState(LogPhase.ENDED, 0, SEVEN), id="done, OnFailure"),
        pytest.param(pod(FAILED), LogState(LogPhase.ENDED, 0, SEVEN), id="failed for good"),
        pytest.param(
            pod(BACK_OFF, policy="Always", lastState=FAILED, restartCount=3),
            LogState(LogPhase.OPEN, 3, SEVEN),
            id="paused",
        ),
        pytest.param(pod(phase="Failed"), LogState(LogPhase.ENDED), id="refused by its node"),
    ],
)
def test_a_pod_shows_the_state_of_its_log(given: dict[str, Any], state: LogState) -> None:
    found = log_state(given, "pytorch")
    assert (found.phase, found.restarts, found.started) == (state.phase, state.restarts, state.started)
    assert found.phase is not LogPhase.NOT_STARTED or found.reason == state.reason


def test_a_pod_without_a_node_says_so() -> None:
    assert log_state({**pod(), "spec": {"containers": []}}, "pytorch").reason == "no node yet"


def test_a_pod_without_labels_keeps_its_name() -> None:
    assert (short_name(pod()), container_names(pod())) == ("digits-worker-1", ["pytorch"])


WAITING, OPEN, ENDED = LogState(LogPhase.NOT_STARTED), LogState(LogPhase.OPEN), LogState(LogPhase.ENDED)


@pytest.mark.parametrize(
    ("seconds", "left", "complete"),
    [
        pytest.param(0, [], True, id="all logs are read"),
        pytest.param(0, [(WAITING, False)], True, id="a pod that never started"),
        pytest.param(0, [(ENDED, False)], False, id="a log has a rest"),
        pytest.param(SETTLE_SECONDS, [(ENDED, False)], False, id="a log has a rest, later"),
        pytest.param(0, [(OPEN, True)], False, id="a container goes on"),
        pytest.param(SETTLE_SECONDS, [(OPEN, True)], True, id="a container goes on and prints nothing"),
        pytest.param(SETTLE_SECONDS, [(OPEN, False)], False, id="it is not current"),
        pytest.param(SETTLE_SECONDS, [(OPEN, True), (ENDED, False)], False, id="another log has a rest"),
    ],
)
def test_the_logs_of_an_ended_job_are_complete(
    seconds: float, left: list[tuple[LogState, bool]], complete: bool
) -> None:
    assert EndOfJob(ended_at=100).is_complete(100 + seconds, left) is complete


def test_before_the_jobs_end_nothing_is_complete() -> None:
    assert (EndOfJob().is_complete(100, []), EndOfJob().is_late(100)) == (False, False)


def test_a_later_line_extends_the_wait() -> None:
    assert not EndOfJob(ended_at=100, line_at=101).is_complete(100 + SETTLE_SECONDS, [(OPEN, True)])


def test_a_container_that_prints_on_does_not_keep_the_command() -> None:
    assert EndOfJob(ended_at=100, line_at=100 + DRAIN_SECONDS).is_complete(100 + DRAIN_SECONDS, [(OPEN, True)])


def test_the_wait_has_an_end() -> None:
    assert [EndOfJob(ended_at=0).is_late(now) for now in (DRAIN_SECONDS - 1, DRAIN_SECONDS)] == [False, True]
