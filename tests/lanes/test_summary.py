"""What people and CI read."""

from tests.lanes import summary
from tests.lanes.machine import Lack
from tests.lanes.plan import LeftOut
from tests.lanes.results import Failure, Results

LOST = Failure("tests/test_x.py::test_y", "assert 1 == 2\nand more")


def results(passed: int = 0, failed: int = 0, skipped: int = 0) -> Results:
    outcomes = ["passed"] * passed + ["failed"] * failed + ["skipped"] * skipped
    return Results({f"test-{index}": outcome for index, outcome in enumerate(outcomes)})


def test_one_line_closes_all_lanes_and_counts_what_was_left_out_as_skipped() -> None:
    assert summary.closing([results(3, 1, 2), results(4)], 5) == "7 passed, 1 failed, 7 skipped"


def test_a_failure_is_told_at_once_with_the_log_to_open() -> None:
    assert summary.failed_now("unit", LOST, "out/test/unit.log").splitlines() == [
        "FAILED unit: tests/test_x.py::test_y",
        "       assert 1 == 2",
        "       log: out/test/unit.log",
    ]


def test_all_failures_are_told_at_the_end_with_their_logs() -> None:
    found = Results({"x": "failed"}, {"x": LOST})
    assert summary.failures({"unit": found, "torch": results(1)}, {"unit": "unit.log", "torch": "torch.log"}) == [
        "",
        "1 failed. Open the log and search for the name:",
        "  unit.log  tests/test_x.py::test_y",
        "      assert 1 == 2\n      and more",
    ]
    assert summary.failures({"torch": results(1)}, {}) == []


def test_what_was_left_out_is_a_table() -> None:
    rows = [
        LeftOut("cluster", 64, Lack("no Docker", "start Docker")),
        LeftOut("helm", 7, Lack("Go is missing", "install Go")),
    ]
    assert summary.left_out(rows, "make test") == [
        "",
        "left out  tests  why            how to run it",
        "cluster   64     no Docker      start Docker; then make test",
        "helm      7      Go is missing  install Go; then make test",
    ]
    assert summary.left_out([], "make test") == []


def test_progress_says_how_far_a_lane_has_come() -> None:
    assert summary.progress(75.2, "unit", "tests", results(12, 1)) == "[ 1:15] unit         tests: 12 passed, 1 failed"
    assert summary.progress(5, "cluster", "runs make cluster", Results()) == "[ 0:05] cluster      runs make cluster"


def test_a_long_list_of_failures_is_cut() -> None:
    many = {str(index): Failure(str(index), "no") for index in range(50)}
    lines = summary.failures({"unit": Results({}, many)}, {"unit": "unit.log"})
    assert lines[-1] == "  and 10 more in the same logs"
