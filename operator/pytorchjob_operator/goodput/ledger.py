"""The ledger of one job: `advance(ledger, sight, now) -> Ledger`. Pure; `now` is seconds of any clock.

The time since the last sight belongs to the class that was open. Some of it is moved later, when more is known: a first
step shows that the time before it was start, and a failure is noticed after it happened. Booking and moving never
change the sum, so the sum is the wall clock whatever is seen, and in whatever order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pytorchjob_operator.goodput.classes import TRAINING, TimeClass
from pytorchjob_operator.goodput.interruptions import Causes, InterruptionKind
from pytorchjob_operator.goodput.script_saves import SETTLE_SECONDS, SavesSeen, ScriptSaves

_R, _W = TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION
_RECOVERY = TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION
_SAVE = TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME
_ENDABLE = (*TRAINING, _SAVE)
"""The classes of a round whose end can be noticed late."""


class JobStage(StrEnum):
    """What a job does now, as far as it is visible without code in the script."""

    SUSPENDED = "Suspended"
    QUEUED = "Queued"
    WAITING_FOR_PODS = "WaitingForPods"
    STARTING = "Starting"
    """No worker has run yet."""
    RESTARTING = "Restarting"
    """A round is over, and the next one has no workers yet."""
    RUNNING = "Running"
    SAVING = "Saving"
    """Workers run, and were asked to save a checkpoint."""
    OVER = "Over"
    UNKNOWN = "Unknown"
    """The open class goes on."""


_OF_STAGE = {
    JobStage.SUSPENDED: TimeClass.SUSPENDED,
    JobStage.QUEUED: TimeClass.QUEUED,
    JobStage.WAITING_FOR_PODS: TimeClass.WAITING_FOR_PODS,
    JobStage.STARTING: TimeClass.PROGRAM_STARTUP,
    JobStage.RESTARTING: _RECOVERY,
    JobStage.SAVING: _SAVE,
    JobStage.OVER: TimeClass.OTHER,
}


@dataclass(frozen=True, slots=True)
class Interruption:
    """A failure or a loss has ended the workers of a round, or has let them stand still until they went on."""

    seconds: float = 0.0
    """For how long this was not noticed."""
    hung: bool = False
    """True if the workers lived and did nothing: then the time since the last step counts."""
    cause: InterruptionKind | None = None
    """None: unknown."""
    idle: float = 0.0
    """For how long the workers did nothing before they were recognised as hung, as an agent measured it."""


@dataclass(frozen=True, slots=True)
class StepsSeen:
    """When the most advanced worker did its steps."""

    first: int | None = None
    """Its first step in this round. None: unknown."""
    first_age: float = 0.0
    """Seconds since then."""
    age: float = 0.0
    """Seconds since its last step."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is visible of a job at one moment."""

    stage: JobStage
    step: int | None = None
    """Steps done by the most advanced worker, if that has just changed in this round."""
    steps: StepsSeen | None = None
    """When it did these steps. None: just now."""
    goes_back: bool = False
    """True if a worker's steps went back within a round: they do not count the whole training."""
    begins: bool = False
    """True if the workers of a new round have just been started."""
    adopts: bool = False
    """True if a round that runs already has just become known."""
    interruption: Interruption | None = None
    cause: InterruptionKind | None = None
    """The cause of the last interruption, if it has just become known that it was another one."""
    missed: int = 0
    """Earlier rounds that failed, of which nothing was seen: with `adopts`, or of a round that is over."""
    ended_age: float | None = None
    """Of an adopted round: seconds since the workers of the round before ended."""
    failure: Interruption | None = None
    """How the last round failed, if its end was not seen, or was seen before."""
    workers_age: float | None = None
    """Seconds since the workers of this round were started. None: unknown."""
    saves: SavesSeen | None = None
    """The script's own saves in this round, if there are more than before."""
    over: float = 0.0
    """For how long the training was over before this was seen."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The time of one job by class, and what is needed to book the next second."""

    seconds: Mapping[TimeClass, float]
    """Seconds of each class, up to `until`."""
    current: TimeClass
    """The open class."""
    until: float
    """Up to when everything is booked."""
    entered: float
    """When the open class was entered, as far as this is known."""
    furthest: int | None = None
    """The furthest step of earlier rounds. None: unknown."""
    step: int | None = None
    """The furthest step of this round. None: none yet."""
    stepped: float | None = None
    """When `step` last grew."""
    unknown: float = 0.0
    """Running seconds before any step was known: a first step turns them into start."""
    unsteady: bool = False
    """True if steps went back within a round. Replayed steps are unknown then."""
    interruptions: int = 0
    """Failures and losses that ended a round, or without whose member it went on."""
    causes: Causes = field(default_factory=Causes)
    new_steps: int = 0
    """Steps that no earlier round had done, without the first ones of each round: the seconds of running hold them."""
    script: ScriptSaves = field(default_factory=ScriptSaves)
    missed: bool = False
    """True if this round follows a failure that nobody saw: its cause is unknown until an agent reports it."""
    left: TimeClass | None = None
    """The class of the last round, if it was open when its end became known. None: unknown, or a round runs."""
    regrouped: bool = False
    """True if the round follows another one, and it is unknown when its workers were started."""

    @property
    def total(self) -> float:
        """The wall clock of the job, in seconds."""
        return sum(self.seconds.values())

    @property
    def highest(self) -> int | None:
        """The furthest step of all rounds; None if steps are unknown, or do not count the whole training."""
        known = [step for step in (self.furthest, self.step) if step is not None]
        return None if self.unsteady or not known else max(known)

    def moved(self, by: float) -> "Ledger":
        """Return the same ledger for a clock whose values are greater by this number of seconds."""
        stepped = None if self.stepped is None else self.stepped + by
        settles = None if self.script.settles is None else self.script.settles + by
        script = replace(self.script, settles=settles)
        return replace(self, until=self.until + by, entered=self.entered + by, stepped=stepped, script=script)


def begin(current: TimeClass, now: float) -> Ledger:
    """Return an empty ledger."""
    return Ledger({}, current, now, now)


def book(ledger: Ledger, now: float) -> Ledger:
    """Book the time up to now for the open class. A clock that goes back books nothing until it has caught up."""
    gap = now - ledger.until
    if gap <= 0:
        return ledger
    current = ledger.current
    seconds = {**ledger.seconds, current: ledger.seconds.get(current, 0.0) + gap}
    blind = current is _R and ledger.step is None and ledger.furthest is None
    return replace(ledger, seconds=seconds, until=now, unknown=ledger.unknown + (gap if blind else 0.0))


def advance(ledger: Ledger, sight: Sight, now: float) -> Ledger:
    """Return the ledger after this sight."""
    ledger = book(ledger, now)
    if sight.interruption is not None:
        ledger = _interrupted(ledger, sight.interruption, goes_on=sight.stage is JobStage.RUNNING)
    if sight.cause is not None:
        ledger = replace(ledger, causes=ledger.causes.corrected(sight.cause))
    if sight.missed:
        # A round whose end is booked already is among them.
        missed = sight.missed - (sight.adopts and ledger.current not in _ENDABLE)
        ledger = replace(ledger, interruptions=ledger.interruptions + missed)
    if sight.begins or sight.adopts:
        script = ledger.script.in_round(settles=ledger.until + SETTLE_SECONDS if sight.adopts else None)
        ledger = replace(ledger, furthest=_furthest(ledger), step=None, stepped=None, script=script)
        regrouped = sight.begins and ledger.current is _RECOVERY
        missed = sight.adopts and sight.missed > 0 and ledger.current in _ENDABLE
        ledger = replace(ledger, causes=ledger.causes.closed(), regrouped=regrouped, missed=missed)
    elif sight.workers_age is not None and ledger.regrouped:
        ledger = _workers_started(ledger, sight.workers_age)
    if sight.ended_age is not None and ledger.missed:
        ledger = _restarted(ledger, sight.ended_age)
    if sight.failure is not None:
        ledger = _explained(ledger, sight.failure)
    if sight.goes_back:
        ledger = replace(ledger, unsteady=True)
    if sight.saves is not None:
        ledger = _saved(ledger, sight.saves)
    if sight.step is not None:
        ledger = _reached(ledger, sight.step, sight.steps or StepsSeen())
    if sight.saves is not None:
        ledger = _counted(ledger, sight.saves)
    if sight.stage is JobStage.OVER:
        ledger = _ended_late(ledger, TimeClass.OTHER, sight.over)
    return _enter(ledger, _class_of(ledger, sight))


def _class_of(ledger: Ledger, sight: Sight) -> TimeClass:
    if sight.stage is JobStage.UNKNOWN:
        return ledger.current
    if sight.stage is not JobStage.RUNNING:
        return _OF_STAGE[sight.stage]
    if ledger.step is not None:
        replays = ledger.furthest is not None and ledger.step < ledger.furthest and not ledger.unsteady
        return _W if replays else _R
    if ledger.furthest is None:
        return _R
    if sight.begins or ledger.current not in TRAINING:
        return TimeClass.PROGRAM_STARTUP
    return ledger.current


def _enter(ledger: Ledger, new: TimeClass) -> Ledger:
    if new is ledger.current:
        return ledger
    ends = ledger.current in _ENDABLE and new not in _ENDABLE
    left = ledger.current if ends else None if new in _ENDABLE else ledger.left
    return replace(ledger, current=new, entered=ledger.until, left=left)


def _furthest(ledger: Ledger) -> int | None:
    known = [step for step in (ledger.furthest, ledger.step) if step is not None]
    return max(known, default=None)


def _interrupted(ledger: Ledger, found: Interruption, *, goes_on: bool) -> Ledger:
    """Move the time for which a failure or a loss was not noticed out of the open class; `goes_on`: it stays open."""
    causes = ledger.causes.added(InterruptionKind.HANG if found.hung else found.cause)
    ledger = replace(ledger, interruptions=ledger.interruptions + 1, causes=causes)
    idle = ledger.until - ledger.stepped if found.hung and ledger.stepped is not None else 0.0
    before, lost = ledger.seconds.get(ledger.current, 0.0), TimeClass.HUNG if found.hung else TimeClass.DETECTION
    moved = _ended_late(ledger, lost, max(found.seconds, idle))
    return _later(moved, before - moved.seconds.get(ledger.current, 0.0)) if goes_on else moved


def _later(ledger: Ledger, by: float) -> Ledger:
    """Return the ledger as if the open class had begun, and its last step had been done, later by these seconds."""
    stepped = None if ledger.stepped is None else min(ledger.stepped + by, ledger.until)
    causes = ledger.causes.closed()
    return replace(ledger, entered=min(ledger.entered + by, ledger.until), stepped=stepped, causes=causes)


def _restarted(ledger: Ledger, ended_age: float) -> Ledger:
    """Begin the round anew at the end of the one before: nobody saw it, and its members agreed on this one.

    The first member that reports counts. The workers' age then shows how long the restart took.
    """
    if ledger.regrouped or ledger.step is not None or ledger.current not in TRAINING:
        return ledger
    late = min(max(ended_age, 0.0), max(ledger.until - ledger.entered, 0.0))
    current = _R if ledger.furthest is None else TimeClass.PROGRAM_STARTUP
    moved = _move(ledger, ledger.current, current, late)
    return replace(moved, current=current, entered=ledger.until - late, regrouped=True)


def _explained(ledger: Ledger, found: Interruption) -> Ledger:
    """Book how a round failed, of which only the end was known, or not even that."""
    cause, lost = (
        InterruptionKind.HANG if found.hung else found.cause,
        TimeClass.HUNG if found.hung else TimeClass.DETECTION,
    )
    if ledger.missed:
        if ledger.causes.open and not (found.hung and ledger.causes.last is not InterruptionKind.HANG):
            return ledger  # another member has reported the same
        opened = ledger.causes if ledger.causes.open else replace(ledger.causes, last=None, open=True)
        if found.hung:
            ledger = _move(ledger, _R, lost, found.idle)
        return replace(ledger, causes=opened.corrected(cause) if cause is not None else opened)
    if ledger.left is None:
        return ledger  # a former coordinator has booked it
    if ledger.causes.open:
        causes, more = ledger.causes.corrected(cause) if cause is not None else ledger.causes, 0
    else:
        causes, more = ledger.causes.added(cause), 1
    late = found.seconds - (ledger.until - ledger.entered)
    moved = _move(ledger, ledger.left, lost, late)
    unknown = max(ledger.unknown - max(late, 0.0), 0.0) if ledger.left is _R else ledger.unknown
    return replace(moved, interruptions=ledger.interruptions + more, causes=causes, unknown=unknown)


def _ended_late(ledger: Ledger, new: TimeClass, seconds: float) -> Ledger:
    """Move the time for which the end of the workers was not noticed out of their class."""
    if ledger.current not in _ENDABLE:
        return ledger
    late = min(max(seconds, 0.0), max(ledger.until - ledger.entered, 0.0))
    moved = _move(ledger, ledger.current, new, late)
    return replace(moved, unknown=max(ledger.unknown - late, 0.0)) if ledger.current is _R else moved


def _workers_started(ledger: Ledger, age: float) -> Ledger:
    """Move the time between the assignment and the workers' start: the agents fetch checkpoints in it."""
    late = min(max(ledger.until - ledger.entered - max(age, 0.0), 0.0), max(ledger.until - ledger.entered, 0.0))
    moved = _move(ledger, ledger.current, _RECOVERY, late)
    unknown = max(ledger.unknown - late, 0.0) if ledger.current is _R else ledger.unknown
    return replace(moved, regrouped=False, entered=ledger.entered + late, unknown=unknown)


def _saved(ledger: Ledger, seen: SavesSeen) -> Ledger:
    """Move the time of complete saves out of the open class, as if it had not passed there."""
    spent = max(seen.seconds - ledger.script.round_seconds, 0.0)
    if ledger.current not in TRAINING or ledger.script.settling(ledger.until):
        return ledger
    moved = _move(ledger, ledger.current, _SAVE, spent)
    stepped = None if ledger.stepped is None else min(ledger.stepped + spent, ledger.until)
    entered, unknown = min(ledger.entered + spent, ledger.until), ledger.unknown
    if ledger.current is _R:
        unknown = max(unknown - spent, 0.0)
    return replace(moved, entered=entered, stepped=stepped, unknown=unknown)


def _counted(ledger: Ledger, seen: SavesSeen) -> Ledger:
    """Count the saves of a heartbeat. After the first step the time of the loads before it is known to be no start."""
    script, known = ledger.script, ledger.step is not None
    if not known:
        seen = replace(seen, load_seconds=0.0)
    elif not script.settling(ledger.until):
        loads = max(seen.load_seconds - script.round_loads, 0.0)
        ledger = _move(ledger, TimeClass.PROGRAM_STARTUP, TimeClass.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME, loads)
    return replace(ledger, script=script.counted(seen, ledger.until, steps_known=known))


def _reached(ledger: Ledger, step: int, seen: StepsSeen) -> Ledger:
    """Record a step of this round. It shows what the time before it was."""
    before, furthest = ledger.step, ledger.furthest
    if before is not None and step <= before:
        return ledger
    if before is None:
        ledger = _started(ledger, step, seen)
    else:
        new = step - max(before, before if furthest is None else furthest)
        ledger = replace(ledger, new_steps=ledger.new_steps + max(new, 0))
    since = min(max(seen.age, 0.0), _since_step(ledger))
    if before is not None and furthest is not None and ledger.current is _W and step >= furthest:
        spent = _since_step(ledger) - since
        ledger = _move(ledger, _W, _R, spent * (step - furthest) / (step - before) + since)
    return replace(ledger, step=step, stepped=ledger.until - since)


def _started(ledger: Ledger, step: int, seen: StepsSeen) -> Ledger:
    """Record the first step of this round that is seen. The time before the first one was start, the rest was steps."""
    first, furthest = step if seen.first is None else min(seen.first, step), ledger.furthest
    ledger = replace(ledger, script=ledger.script.begun(seen.first, step, later=furthest is not None))
    startup = TimeClass.PROGRAM_STARTUP
    if furthest is None:
        trained = min(max(seen.first_age, 0.0), ledger.unknown)
        ledger = _move(ledger, _R, startup, ledger.unknown - trained)
        return replace(ledger, unknown=0.0, new_steps=ledger.new_steps + step - first if trained else ledger.new_steps)
    if ledger.current is not startup:
        return ledger
    trained = min(max(seen.first_age, 0.0), max(ledger.until - ledger.entered, 0.0))
    new = max(step - max(furthest, first), 0)
    fresh = trained * new / (step - first) if step > first else 0.0
    ledger = _move(_move(ledger, startup, _R, fresh), startup, _W, trained - fresh)
    return replace(ledger, new_steps=ledger.new_steps + (new if trained else 0))


def _since_step(ledger: Ledger) -> float:
    """Return the time in the open class since the last step was seen."""
    return max(ledger.until - max(ledger.entered, ledger.stepped or ledger.entered), 0.0)


def _move(ledger: Ledger, source: TimeClass, target: TimeClass, seconds: float) -> Ledger:
    """Move seconds from one class to another, as far as there are any."""
    there = ledger.seconds.get(source, 0.0)
    moved = min(max(seconds, 0.0), there)
    if moved == 0.0 or source is target:
        return ledger
    changed = {source: there - moved, target: ledger.seconds.get(target, 0.0) + moved}
    return replace(ledger, seconds={**ledger.seconds, **changed})
