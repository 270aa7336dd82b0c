"""What the operator shows of one job: `summarize(state, now) -> Report`. Pure."""

from typing import Any

from pytorchjob_agent.contract.messages import LEASE_SECONDS
from pytorchjob_operator.coordinator_report import LastRestart, PhaseName, Report, SilentPod, TrainingEnd
from pytorchjob_operator.rounds import shrink, stragglers
from pytorchjob_operator.rounds.phases import Ended, Phase, name_of
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.values import Member

_MAX_MESSAGE = 4096


def summarize(state: JobState, now: float) -> Report:
    """Return the state of the job's training."""
    phase, round_, front = name_of(state.phase), state.round, state.front
    running = phase is PhaseName.RUNNING
    waiting = [member for member in state.members.values() if member.waiting]
    if running and round_ is not None:
        members = round_.members
        waiting = [member for member in waiting if member.index not in members]
    return Report(
        round=str(round_.id) if round_ else "",
        phase=phase,
        members=len(round_.present) if round_ else 0,
        world=_world_size(state),
        restarts=state.restarts,
        last_restart=_last_restart(state, now),
        **_progress(front),
        problems={str(reason): message for reason, message in state.problems.items()},
        ended=_end(state.phase),
        waiting=0 if running else len(waiting),
        spares=len(waiting) if running else 0,
        silent=_silent(state, now),
        stragglers=stragglers.report(state, now),
        without=_without(state) if running else (),
        survive=shrink.outlook(state),
    )


def _without(state: JobState) -> tuple[str, ...]:
    """Return the pods that have left the round."""
    if (round_ := state.round) is None:
        return ()
    indices = (round_.ranks[rank] for rank in sorted(round_.left))
    return tuple(state.pod_name(index) for index in indices if index is not None)


def _silent(state: JobState, now: float) -> tuple[SilentPod, ...]:
    """Return the pods whose agents are silent. If no agent is heard, the coordinator itself may be cut off."""
    heard = any(
        member.connection is not None and now - member.heard_at < LEASE_SECONDS for member in state.members.values()
    )
    if not heard:
        return ()
    silent = [agent for index, agent in state.silent.items() if index in state.pods]  # others terminate
    return tuple(SilentPod(agent.pod_uid, max(now - agent.since, 0.0)) for agent in silent)


def _progress(front: Member | None) -> dict[str, Any]:
    """Return the fields of the report that describe progress: those of one member."""
    if front is None:
        return {}
    shown = front.shown
    return {
        "step": front.known_step,
        "total": shown.total if front.step is None else front.total,
        "percent": shown.percent,
        "remaining": shown.remaining,
        "rate": shown.rate,
        "metrics": front.metrics,
    }


def _world_size(state: JobState) -> int:
    """The processes of the latest round; those of an adopted round once all of its members are connected."""
    round_ = state.round
    if round_ is None or round_.world_size:
        return round_.world_size if round_ else 0
    members = [None if index is None else state.members.get(index) for index in round_.present]
    return 0 if None in members else sum(member.nproc for member in members if member)


def _last_restart(state: JobState, now: float) -> LastRestart | None:
    last = next((restart for restart in reversed(state.history) if restart.counted and restart.message), None)
    if last is None:
        return None
    return LastRestart(max(0.0, now - last.at), last.reason, last.message[:_MAX_MESSAGE], last.first)


def _end(phase: Phase) -> TrainingEnd | None:
    if not isinstance(phase, Ended):
        return None
    return TrainingEnd(phase.end.reason, phase.end.message[:_MAX_MESSAGE], phase.end.exit_code, phase.end.first)
