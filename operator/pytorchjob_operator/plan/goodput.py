"""status.goodput: the job's ledger over its life. The coordinator books what its agents show; the plan books the rest.

The ledger has three homes. The coordinator has it while it hears agents, and reports it. `status.goodput` has it as it
was written last, so that a new coordinator begins with it. A pass hands it from one to the other. The time between two
homes belongs to the class that was open, so that a change of the leader costs seconds of precision, and no second.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from pytorchjob_operator.coordinator_report import PhaseName
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.figures import Figures
from pytorchjob_operator.goodput.interruptions import Causes
from pytorchjob_operator.goodput.ledger import Interruption, JobStage, Ledger, Sight, advance, begin, book
from pytorchjob_operator.goodput.script_saves import ScriptSaves
from pytorchjob_operator.model import GoodputSeconds, GoodputStatus, PyTorchJob
from pytorchjob_operator.observed import Observed, Pod, PodPhase
from pytorchjob_operator.plan import elastic, members, queue
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.problem import read_time

_TRAINED = (TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION)
_WITHOUT_PODS = (TimeClass.WAITING_FOR_PODS, TimeClass.SUSPENDED, TimeClass.QUEUED)
"""Classes that are over once the pods run, also before an agent is heard."""
_DOWN = (JobStage.RESTARTING, JobStage.WAITING_FOR_PODS)
_MOST = 1e15
_MOST_SAVES, _MOST_STEPS = 2**31 - 1, 2**53 - 1


def build_ledger(seen: Observed, now_is: JobStage) -> Ledger:
    """Return the ledger up to this pass; its clock is the wall clock, in seconds since 1970."""
    now = seen.now.timestamp()
    ledger = _known(seen, now)
    if _is_coordinators(seen, now_is):
        return book(ledger, now)
    if now_is is JobStage.UNKNOWN and ledger.current in _WITHOUT_PODS:
        now_is = JobStage.RESTARTING
    fell = ledger.current in _TRAINED and now_is in _DOWN
    return advance(ledger, Sight(now_is, interruption=Interruption() if fell else None), now)


def is_due(context: Context) -> bool:
    """Whether the status must have this ledger even if nothing else is new.

    Nothing else knows that its open class has changed, where no coordinator keeps it.
    """
    stored, report = context.seen.job.status.goodput, context.seen.report
    kept = report is not None and report.ledger is not None
    return stored is not None and not kept and stored.current != context.ledger.current


def build(ledger: Ledger, now: datetime) -> GoodputStatus:
    """Return the ledger as the status has it."""
    seconds = {each.value: round(min(spent, _MOST), 3) for each, spent in ledger.seconds.items() if spent >= 0.001}
    return GoodputStatus(
        time=now.replace(microsecond=now.microsecond // 1000 * 1000),
        current=ledger.current.value,
        seconds=GoodputSeconds.model_validate(seconds),
        percent=Figures.of_seconds(seconds).percent,
        furthest_step=ledger.highest,
        interruptions=ledger.interruptions or None,
        pod_losses=ledger.causes.pod_losses or None,
        crashes=ledger.causes.crashes or None,
        hangs=ledger.causes.hangs or None,
        **_steps(ledger),
    )


def _steps(ledger: Ledger) -> dict[str, Any]:
    """Return the fields that need known steps."""
    script = ledger.script
    if ledger.highest is None:
        return {}
    unseen = script.unseen and not script.saves
    return {
        "new_steps": min(ledger.new_steps, _MOST_STEPS),
        "saves": None if unseen else min(script.saves, _MOST_SAVES),
        "save_seconds": round(min(script.seconds, _MOST), 3) or None,
        "saved_steps": min(script.steps, _MOST_STEPS) or None,
    }


def stage(
    seen: Observed, job: PyTorchJob, pods: Collection[Pod], *, coordinated: bool, stops: bool = False
) -> JobStage:
    """Return what the job does, by its wanted pods alone; `coordinated`: some of them train with the coordinator.

    `stops`: its queue allows it no pods. Kueue's own integration suspends the job for that.
    """
    if job.spec.run_policy.suspend or stops:
        return JobStage.QUEUED if queue.queue_of(job) else JobStage.SUSPENDED
    least, _ = members.limits(job)
    if sum(map(_is_placed, pods)) < least:
        return JobStage.WAITING_FOR_PODS
    if sum(map(_runs, pods)) < least:
        return JobStage.RESTARTING if _has_trained(seen) else JobStage.STARTING
    if coordinated and members.starts_agents(job):
        return JobStage.UNKNOWN if _has_trained(seen) else JobStage.STARTING
    return JobStage.RUNNING


def _is_coordinators(seen: Observed, now_is: JobStage) -> bool:
    """Whether the coordinator hears agents of the job, and so books its time."""
    report = seen.report
    heard = report is not None and report.ledger is not None and report.phase is not PhaseName.WAITING
    return heard and now_is not in (JobStage.SUSPENDED, JobStage.QUEUED)


def _known(seen: Observed, now: float) -> Ledger:
    """Return the newest ledger that is known, by the wall clock."""
    stored, report = seen.job.status.goodput, seen.report
    if report is not None and report.ledger is not None:
        return report.ledger.moved(now - report.ledger.until)
    return _begun(seen, now) if stored is None else _read(stored)


def _begun(seen: Observed, now: float) -> Ledger:
    """Return a new ledger: of a new job from its creation on, of a job that another version has managed from now on."""
    meta, trained = seen.job.metadata, elastic.has_trained(seen)
    created = read_time(meta.creation_timestamp)
    new = created is not None and not seen.job.status.conditions
    start = min(created.timestamp(), now) if new and created is not None else now
    return begin(TimeClass.RUNNING if trained else TimeClass.WAITING_FOR_PODS, start)


def _read(stored: GoodputStatus) -> Ledger:
    """Return the ledger of a status; a class of a later version counts as another one."""
    spent = stored.seconds.to_api()
    names = {each.value: each for each in TimeClass}
    return Ledger(
        seconds={names[name]: seconds for name, seconds in spent.items()},
        current=names.get(stored.current, TimeClass.OTHER),
        until=stored.time.timestamp(),
        # It may have been open since before the status was written: a hang is found minutes later.
        entered=stored.time.timestamp() - spent.get(stored.current, 0.0),
        furthest=stored.furthest_step,
        interruptions=stored.interruptions or 0,
        causes=Causes(stored.pod_losses or 0, stored.crashes or 0, stored.hangs or 0),
        new_steps=stored.new_steps or 0,
        script=_read_script(stored),
    )


def _read_script(stored: GoodputStatus) -> ScriptSaves:
    """Return the saves of a status. Before the first step nothing is known, and nothing was missed either."""
    unseen = stored.saves is None and stored.furthest_step is not None
    return ScriptSaves(stored.saves or 0, stored.save_seconds or 0.0, stored.saved_steps or 0, unseen)


def _has_trained(seen: Observed) -> bool:
    """Whether workers have run, as the status or the coordinator knows it."""
    now = seen.now.timestamp()
    ledger = book(_known(seen, now), now)
    return elastic.has_trained(seen) or any(ledger.seconds.get(each) for each in _TRAINED)


def _is_placed(pod: Pod) -> bool:
    """Whether the pod has a node, and may train there."""
    return not (pod.deleting or pod.failed) and (bool(pod.node) or pod.phase is not PodPhase.PENDING)


def _runs(pod: Pod) -> bool:
    return pod.succeeded or (pod.active and pod.problem is None)
