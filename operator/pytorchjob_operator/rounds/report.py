"""What there is to tell about one job: `report(state, now) -> Report`. Pure."""

from pytorchjob_operator.report import Ended, LastRestart, Report
from pytorchjob_operator.rounds.state import JobState, Member

_MAX_MESSAGE = 4096


def report(state: JobState, now: float) -> Report:
    """Return how the job's rounds stand."""
    round_, front = state.round, _furthest(state)
    running = round_ is not None and state.gathering is None and state.end is None
    waiting = sum(1 for one in state.members.values() if one.waiting and not (running and _takes_part(state, one)))
    return Report(
        round=str(round_.id) if round_ else "",
        running=running,
        members=len(round_.ranks) if round_ else 0,
        world=_world(state),
        restarts=state.restarts,
        last_restart=_last_restart(state, now),
        step=front.step if front else None,
        total=front.total if front else None,
        metrics=front.metrics if front else {},
        problems={str(reason): message for reason, message in state.problems.items()},
        ended=_ended(state),
        waiting=0 if running else waiting,
        spares=waiting if running else 0,
    )


def _takes_part(state: JobState, member: Member) -> bool:
    return state.round is not None and state.round.has(member.index)


def _furthest(state: JobState) -> Member | None:
    told = [one for one in state.members.values() if one.step is not None]
    return max(told, key=lambda one: (one.step, -one.index), default=None)


def _world(state: JobState) -> int:
    """The processes of the round; those of an adopted one once all of its members have come."""
    if state.round is None or state.round.world:
        return state.round.world if state.round else 0
    members = [None if index is None else state.members.get(index) for index in state.round.ranks]
    return 0 if None in members else sum(one.nproc for one in members if one)


def _last_restart(state: JobState, now: float) -> LastRestart | None:
    last = next((one for one in reversed(state.history) if one.counted), None)
    return None if last is None else LastRestart(max(0.0, now - last.at), last.reason, last.message[:_MAX_MESSAGE])


def _ended(state: JobState) -> Ended | None:
    end = state.end
    return None if end is None else Ended(end.reason, end.message[:_MAX_MESSAGE], end.exit_code)
