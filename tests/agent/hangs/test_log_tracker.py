"""What rules find in lines."""

import pytest

from pytorchjob_agent.contract.hang_rules import Comparison, LogRule
from pytorchjob_agent.hangs.log_tracker import LogEvidence, RuleTracker

Line = tuple[int, str, float]


def found(rule: LogRule, *lines: Line) -> LogEvidence:
    tracker = RuleTracker(rule)
    for local_rank, text, at in lines:
        tracker.take(local_rank, text, at)
    return tracker.seen()


def test_matches_are_timed() -> None:
    rule = LogRule("epoch", r"epoch \d+")
    seen = found(rule, (0, "start", 1.0), (0, "epoch 1", 2.0), (1, "an epoch", 3.0), (0, "[epoch 2]", 4.0))
    assert seen == LogEvidence(rule, first=2.0, last=4.0, line="[epoch 2]")


def test_a_long_line_is_quoted_in_part() -> None:
    assert len(found(LogRule("a", "x"), (0, "x" * 4000, 1.0)).line) == 200


def test_a_fault_stays_the_first_one() -> None:
    rule = LogRule("xid", "Xid", fault_on_match=True)
    seen = found(rule, (0, "Xid 79", 1.0), (0, "Xid 31", 2.0))
    assert (seen.fault, seen.line) == (True, "Xid 79")


def test_a_rule_is_over_at_its_stop_pattern() -> None:
    rule = LogRule("epoch", "epoch", stop_pattern="evaluating")
    seen = found(rule, (0, "epoch 1", 1.0), (0, "evaluating", 2.0), (0, "epoch 2", 3.0))
    assert (seen.over, seen.last) == (True, 1.0)


@pytest.mark.parametrize(
    ("operator", "numbers", "bad"),
    [
        pytest.param("gt", "1 3 3", 2, id="greater, twice in a row"),
        pytest.param("gt", "3 3 1", 0, id="a good one begins anew"),
        pytest.param("gt", "3 2 3", 1, id="equal is not greater"),
        pytest.param("gteq", "2 3", 2, id="greater or equal"),
        pytest.param("lt", "1 -1e3", 2, id="less"),
        pytest.param("lteq", "2 1", 2, id="less or equal"),
        pytest.param("eq", "2 2.0", 2, id="equal"),
        pytest.param("lt", "nan NaN", 2, id="what is no number any more is bad in any case"),
        pytest.param("gt", "inf", 1, id="infinite"),
        pytest.param("gt", "3 n/a", 0, id="a word is not bad"),
    ],
)
def test_numbers_are_compared(operator: str, numbers: str, bad: int) -> None:
    rule = LogRule("loss", r"loss=(\S+)", operator=Comparison(operator), value=2.0, points=2)
    assert found(rule, *((0, f"loss={number}", 1.0) for number in numbers.split())).bad == bad


def test_each_worker_is_counted_by_itself() -> None:
    rule = LogRule("loss", r"loss=(\S+)", operator=Comparison.GT, value=2.0, points=2)
    lines = ((0, "loss=3", 1.0), (1, "loss=1", 1.0), (0, "loss=3", 2.0), (1, "loss=3", 2.0))
    assert found(rule, *lines).bad == 2


def test_a_group_that_did_not_match_is_not_bad() -> None:
    rule = LogRule("loss", r"loss(=\d)?", operator=Comparison.GT, value=2.0)
    assert found(rule, (0, "loss", 1.0)).bad == 0
