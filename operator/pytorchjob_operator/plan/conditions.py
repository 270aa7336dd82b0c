"""The list of conditions as training-operator v1 keeps it (contract A.9): the latest change is the last element.

One element per type. Setting the same status and reason again changes nothing; anything else takes the element out and
appends it, which is what the printer column `State` relies on.
"""

from datetime import datetime

from pytorchjob_operator.model import Condition, ConditionStatus, ConditionType

Conditions = tuple[Condition, ...]

_REPLACES = {
    ConditionType.RUNNING: ConditionType.RESTARTING,
    ConditionType.RESTARTING: ConditionType.RUNNING,
}
"""Running and Restarting cannot both be listed: each takes the other one out."""
_WRONG = {ConditionType.CONFIG_VALID: ConditionStatus.FALSE, ConditionType.DEGRADED: ConditionStatus.TRUE}
"""Conditions that are there only while something is wrong, with what says so."""


def set_true(conditions: Conditions, kind: ConditionType, reason: str, message: str, now: datetime) -> Conditions:
    """Set a condition to True and place it last; once Failed holds, nothing can be set."""
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
    """Set a condition that something is wrong; it is first in the list, where it is nobody's State."""
    found = find(conditions, kind)
    if found is not None and (found.reason, found.message) == (reason, message):
        return conditions
    new = _since(found, _new(kind, _WRONG[kind], reason, message, now))
    return (new, *remove(conditions, kind))


def end_running(conditions: Conditions, now: datetime) -> Conditions:
    """Flip Running to False where it stands; its reason stays (v1)."""
    return tuple(
        one.model_copy(update={"status": ConditionStatus.FALSE, "last_update_time": now, "last_transition_time": now})
        if one.type is ConditionType.RUNNING and one.status is ConditionStatus.TRUE
        else one
        for one in conditions
    )


def remove(conditions: Conditions, kind: ConditionType | None) -> Conditions:
    """Take a condition out of the list."""
    return tuple(one for one in conditions if one.type is not kind)


def find(conditions: Conditions, kind: ConditionType) -> Condition | None:
    """The condition of a type."""
    return next((one for one in conditions if one.type is kind), None)


def is_true(conditions: Conditions, kind: ConditionType) -> bool:
    """Whether a condition is there and holds."""
    found = find(conditions, kind)
    return found is not None and found.status is ConditionStatus.TRUE


def _new(kind: ConditionType, status: ConditionStatus, reason: str, message: str, now: datetime) -> Condition:
    """A condition that has just come to this status."""
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_update_time=now, last_transition_time=now
    )


def _since(found: Condition | None, new: Condition) -> Condition:
    """The new condition, with the time since when it has had its status: only a reason or message has changed."""
    if found is None or found.status is not new.status or found.last_transition_time is None:
        return new
    return new.model_copy(update={"last_transition_time": found.last_transition_time})
