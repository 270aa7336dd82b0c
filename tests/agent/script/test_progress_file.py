"""The progress file: what one side writes, the other reads; what does not belong there is refused in words."""

from typing import Any

import pytest

from pytorchjob_agent.script.progress_file import SIZE, ProgressFile, ProgressRecord, RequestKind


def two_sides() -> tuple[ProgressFile, ProgressFile, bytearray]:
    """The worker's view, the agent's view, and the memory between them."""
    memory = bytearray(SIZE)
    agent = ProgressFile(memoryview(memory))
    agent.format()
    return ProgressFile(memoryview(memory)), agent, memory


def test_a_new_progress_file_is_empty() -> None:
    worker, agent, _ = two_sides()
    assert worker.valid
    assert agent.read() == ProgressRecord()
    assert (worker.wanted(RequestKind.CHECKPOINT), worker.wanted(RequestKind.STOP), worker.deadline) == (0, 0, None)


def test_what_a_worker_reports_is_read() -> None:
    worker, agent, _ = two_sides()
    worker.report(7, 100, 12.5, {"loss": 0.25, "images": 3})
    assert agent.read() == ProgressRecord(7, 100, 12.5, 7, 12.5, {"loss": 0.25, "images": 3.0}, reports=True)


def test_the_first_report_stays_known_until_the_steps_begin_again() -> None:
    worker, agent, _ = two_sides()
    for step, now in ((0, 2.0), (1, 3.0), (1, 4.0), (9, 5.0)):
        worker.report(step, None, now, {})
    assert (agent.read().first_step, agent.read().first_time) == (0, 2.0)
    worker.report(3, None, 6.0, {})
    worker.report(4, None, 7.0, {})
    assert (agent.read().first_step, agent.read().first_time) == (3, 6.0)


def test_metrics_may_change_from_step_to_step() -> None:
    worker, agent, _ = two_sides()
    for metrics in ({"loss": 1.0}, {"loss": 0.5, "valid": 2.0}, {}, {"größe": 1.0}, {"loss": 0.25}):
        worker.report(1, None, 1.0, metrics)
        assert agent.read().metrics == metrics


def test_a_number_that_json_cannot_hold_is_left_out() -> None:
    worker, agent, _ = two_sides()
    worker.report(1, None, 1.0, {"loss": float("nan"), "rate": float("inf"), "good": 1.0})
    assert agent.read().metrics == {"good": 1.0}


@pytest.mark.parametrize(
    ("metrics", "kind", "words"),
    [
        pytest.param({"loss": "0.5"}, TypeError, "metric 'loss': str is not a number", id="a text"),
        pytest.param({"loss": True}, TypeError, "metric 'loss': bool is not a number", id="a switch"),
        pytest.param({"loss": None}, TypeError, "metric 'loss': NoneType is not a number", id="nothing"),
        pytest.param({"loss": [1.0]}, TypeError, "of a tensor its .item()", id="a list"),
        pytest.param({"": 1.0}, ValueError, "metric ''", id="no name"),
        pytest.param({"x" * 63: 1.0}, ValueError, "1 to 62 letters", id="a long name"),
        pytest.param({"n": 10**400}, ValueError, "metric 'n': the number is too large", id="more than a float holds"),
        pytest.param({f"m{i}": 1.0 for i in range(17)}, ValueError, "17 metrics", id="too many"),
    ],
)
def test_bad_metrics_are_refused_by_name(metrics: dict[str, Any], kind: type[Exception], words: str) -> None:
    worker, agent, _ = two_sides()
    worker.report(1, None, 1.0, {"good": 1.0})
    with pytest.raises(kind, match="metric") as caught:
        worker.report(2, None, 2.0, metrics)
    assert words in str(caught.value)
    worker.report(3, None, 3.0, {"good": 3.0})
    assert agent.read().metrics == {"good": 3.0}


def test_numpys_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    worker, agent, _ = two_sides()
    worker.report(1, None, 1.0, {"loss": numpy.float32(0.5), "n": numpy.int64(3), "d": numpy.float64(2)})
    assert agent.read().metrics == {"loss": 0.5, "n": 3.0, "d": 2.0}


def test_requests_go_the_other_way() -> None:
    worker, agent, _ = two_sides()
    agent.request(RequestKind.CHECKPOINT, 3, 50.0)
    assert (worker.wanted(RequestKind.CHECKPOINT), worker.wanted(RequestKind.STOP), worker.deadline) == (3, 0, 50.0)
    worker.asks(RequestKind.CHECKPOINT)
    worker.answer(3)
    assert agent.read() == ProgressRecord(answered=3, asks_checkpoint=True)


def test_to_stop_is_to_save_too() -> None:
    worker, agent, _ = two_sides()
    agent.request(RequestKind.STOP, 4, None)
    assert (worker.wanted(RequestKind.CHECKPOINT), worker.wanted(RequestKind.STOP), worker.deadline) == (4, 4, None)


def test_an_older_request_changes_nothing() -> None:
    worker, agent, _ = two_sides()
    agent.request(RequestKind.CHECKPOINT, 4, None)
    agent.request(RequestKind.CHECKPOINT, 2, None)
    assert worker.wanted(RequestKind.CHECKPOINT) == 4


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(0, b"\xff" * SIZE, id="all of it"),
        pytest.param(0, bytes(8), id="the head"),
        pytest.param(8, b"\x09", id="the version"),
        pytest.param(13 * 8, b"\xff" * 8, id="the length of the names"),
        pytest.param(512, b"\x00\xff{", id="the names"),
    ],
)
def test_what_a_script_wrote_over_its_progress_file_does_no_harm(at: int, data: bytes) -> None:
    worker, agent, memory = two_sides()
    worker.report(1, None, 1.0, {"loss": 1.0})
    memory[at : at + len(data)] = data
    assert agent.read().metrics == {}
