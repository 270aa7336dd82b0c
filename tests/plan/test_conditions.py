"""The list of conditions as v1 keeps it: one of each type, the latest change last (contract A.9)."""

import pytest

from pytorchjob_operator.model import Condition, ConditionStatus, ConditionType
from pytorchjob_operator.plan.conditions import Conditions, end_running, set_false, set_first, set_true
from tests.factories import at, condition

CREATED, RUNNING, RESTARTING = ConditionType.CREATED, ConditionType.RUNNING, ConditionType.RESTARTING
SUCCEEDED, FAILED = ConditionType.SUCCEEDED, ConditionType.FAILED
DEGRADED = ConditionType.DEGRADED


def statuses(conditions: Conditions) -> list[str]:
    """`Running=True` and so on."""
    return [f"{condition.type}={condition.status}" for condition in conditions]


def setting(*kinds: ConditionType) -> Conditions:
    """These conditions set one after another, as a job does it: an end ends Running."""
    conditions: Conditions = ()
    for second, kind in enumerate(kinds):
        if kind in (SUCCEEDED, FAILED):
            conditions = end_running(conditions, at(second))
        conditions = set_true(conditions, kind, f"PyTorchJob{kind}", "why", at(second))
    return conditions


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param(
            (CREATED, RUNNING, SUCCEEDED), ["Created=True", "Running=False", "Succeeded=True"], id="a normal life"
        ),
        pytest.param(
            (CREATED, RUNNING, RESTARTING), ["Created=True", "Restarting=True"], id="Restarting replaces Running"
        ),
        pytest.param(
            (CREATED, RUNNING, RESTARTING, RUNNING), ["Created=True", "Running=True"], id="Running replaces Restarting"
        ),
        pytest.param(
            (CREATED, RUNNING, RESTARTING, SUCCEEDED),
            ["Created=True", "Restarting=False", "Succeeded=True"],
            id="an end before the job runs again ends Restarting",
        ),
        pytest.param(
            (CREATED, RUNNING, RESTARTING, FAILED),
            ["Created=True", "Restarting=False", "Failed=True"],
            id="so does a failure",
        ),
        pytest.param(
            (CREATED, RUNNING, FAILED, RUNNING, SUCCEEDED),
            ["Created=True", "Running=False", "Failed=True"],
            id="once Failed holds nothing more is set",
        ),
        pytest.param(
            (CREATED, SUCCEEDED, FAILED),
            ["Created=True", "Succeeded=True", "Failed=True"],
            id="Succeeded does not block",
        ),
    ],
)
def test_sequences(kinds: tuple[ConditionType, ...], expected: list[str]) -> None:
    assert statuses(setting(*kinds)) == expected


def test_the_same_status_and_reason_again_changes_nothing() -> None:
    given = (condition(RUNNING), condition(CREATED))
    assert set_true(given, RUNNING, "PyTorchJobRunning", "another message", at(60)) == given


def test_another_reason_goes_last_and_keeps_the_time_of_transition() -> None:
    given = (condition(RUNNING), condition(CREATED))
    *_, last = set_true(given, RUNNING, "Other", "m", at(60))
    expected = {"reason": "Other", "message": "m", "last_update_time": at(60), "last_transition_time": at(0)}
    assert last == condition(RUNNING).model_copy(update=expected)


def test_another_status_has_a_new_time_of_transition() -> None:
    (new,) = set_true((condition(RUNNING, true=False),), RUNNING, "PyTorchJobRunning", "m", at(60))
    assert new.last_transition_time == at(60)


def test_running_ends_where_it_stands_and_keeps_its_reason() -> None:
    running, created = end_running((condition(RUNNING), condition(CREATED)), at(9))
    assert running == Condition(
        type=RUNNING,
        status=ConditionStatus.FALSE,
        reason="PyTorchJobRunning",
        message="it is Running",
        last_update_time=at(9),
        last_transition_time=at(9),
    )
    assert created == condition(CREATED)


def test_running_ends_once() -> None:
    ended = end_running((condition(RUNNING),), at(9))
    assert end_running(ended, at(10)) == ended


def changed(given: Condition, **fields: object) -> Condition:
    return given.model_copy(update=fields)


def test_what_is_true_becomes_false_at_the_end_of_the_list() -> None:
    given = (condition(RUNNING), condition(CREATED))
    assert set_false(given, RUNNING, "Stopped", "m", at(60)) == (
        condition(CREATED),
        changed(
            condition(RUNNING, true=False),
            reason="Stopped",
            message="m",
            last_update_time=at(60),
            last_transition_time=at(60),
        ),
    )


@pytest.mark.parametrize(
    "given",
    [pytest.param((condition(RUNNING, true=False),), id="it is False"), pytest.param((), id="it is not listed")],
)
def test_only_what_is_true_becomes_false(given: Conditions) -> None:
    assert set_false(given, RUNNING, "Stopped", "m", at(60)) == given


FIRST = (condition(DEGRADED, reason="Slow"), condition(RUNNING))


@pytest.mark.parametrize(
    ("given", "reason", "message", "expected"),
    [
        pytest.param(
            FIRST[1:],
            "Slow",
            "m",
            changed(FIRST[0], message="m", last_update_time=at(60), last_transition_time=at(60)),
            id="a new problem",
        ),
        pytest.param(FIRST, "Slow", "it is Degraded", FIRST[0], id="the same again changes nothing"),
        pytest.param(FIRST, "Slow", "m", changed(FIRST[0], message="m", last_update_time=at(60)), id="another message"),
        pytest.param(
            FIRST,
            "Stuck",
            "it is Degraded",
            changed(FIRST[0], reason="Stuck", last_update_time=at(60)),
            id="another reason",
        ),
    ],
)
def test_a_problem_comes_first_and_keeps_the_time_of_transition(
    given: Conditions, reason: str, message: str, expected: Condition
) -> None:
    assert set_first(given, DEGRADED, reason, message, at(60)) == (expected, condition(RUNNING))
