"""The list of conditions as training-operator v1 keeps it: the latest change is the last element.

One element per type. Setting the same status and reason again changes nothing. Any other change removes the element
and appends it; the printer column `State` relies on that.
"""

from datetime import datetime

from pytorchjob_operator.model import Condition, ConditionStatus, ConditionType

Conditions = tuple[Condition, ...]

_REPLACES = {
    ConditionType.RUNNING: ConditionType.RESTARTING,
    ConditionType.RESTARTING: ConditionType.RUNNING,
}
"""Running and Restarting cannot both be listed: each removes the other."""
_PROBLEM_STATUS = {ConditionType.CONFIG_VALID: ConditionStatus.FALSE, ConditionType.DEGRADED: ConditionStatus.TRUE}
"""Conditions that are listed only while there is a problem, with the status that reports it."""


def set_true(conditions: Conditions, kind: ConditionType, reason: str, message: str, now: datetime) -> Conditions:
    """Set a condition to True and place it last; once Failed is True, nothing can be set."""
    found = find(conditions, kind)
    if is_true(conditions, ConditionType.FAILED):
        return conditions
    if found is not None and (found.status, found.reason) == (ConditionStatus.TRUE, reason):
        return conditions
    new = _since(found, _new(kind, ConditionStatus.TRUE, reason, message, now))
    return (*remove(remove(conditions, kind), _REPLACES.get(kind)), new)


def set_false(conditions: Conditions, kind: ConditionType, reason: str, message: str, now: datetime) -> Conditions:
    """Set a condition that is listed as True to False and place it last; otherwise change nothing."""
    found = find(conditions, kind)
    if found is None or found.status is not ConditionStatus.TRUE:
        return conditions
    new = _new(kind, ConditionStatus.FALSE, reason, message, now)
    return (*remove(conditions, kind), new)


def set_first(conditions: Conditions, kind: ConditionType, reason: str, message: str, now: datetime) -> Conditions:
    """Set a condition that reports a problem. It comes first in the list, so that it never becomes the job's State."""
    found = find(conditions, kind)
    if found is not None and (found.reason, found.message) == (reason, message):
        return conditions
    new = _since(found, _new(kind, _PROBLEM_STATUS[kind], reason, message, now))
    return (new, *remove(conditions, kind))


def end_running(conditions: Conditions, now: datetime) -> Conditions:
    """Set Running or Restarting to False without moving it; its reason stays.

    v1 does so for Running only: a restarted job that ended before it was seen running stayed Restarting for ever.
    """
    return tuple(
        condition.model_copy(
            update={"status": ConditionStatus.FALSE, "last_update_time": now, "last_transition_time": now}
        )
        if condition.type in _REPLACES and condition.status is ConditionStatus.TRUE
        else condition
        for condition in conditions
    )


def remove(conditions: Conditions, kind: ConditionType | None) -> Conditions:
    """Return the list without the condition of a type."""
    return tuple(condition for condition in conditions if condition.type is not kind)


def find(conditions: Conditions, kind: ConditionType) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.type is kind), None)


def is_true(conditions: Conditions, kind: ConditionType) -> bool:
    """Whether a condition exists and is True."""
    found = find(conditions, kind)
    return found is not None and found.status is ConditionStatus.TRUE


def _new(kind: ConditionType, status: ConditionStatus, reason: str, message: str, now: datetime) -> Condition:
    """Return a condition whose status changes now."""
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_update_time=now, last_transition_time=now
    )


def _since(found: Condition | None, new: Condition) -> Condition:
    """Return the new condition; it keeps the old transition time if only reason or message changed."""
    if found is None or found.status is not new.status or found.last_transition_time is None:
        return new
    return new.model_copy(update={"last_transition_time": found.last_transition_time})
