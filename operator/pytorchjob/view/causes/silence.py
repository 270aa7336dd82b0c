"""A job that runs and shows no sign of its script: an observation, because a script may print seldom."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pytorchjob.view import reading, state
from pytorchjob.view.causes.cause import Cause, CauseEvidence, CauseLevel, Finding, Remedy, Symptom, delete_and_apply
from pytorchjob.view.command import starts_agent
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import MOST_LOGS, Seen
from pytorchjob_operator.problem import read_time
from pytorchjob_operator.shown_values import age

_LEAST = timedelta(minutes=3)
"""A shorter silence is not worth a line: with the agent, most hangs are named within this time."""
_WHY = "The job runs. For {time}, no step was reported, and no line was printed by {pods}. That alone is no fault."
_SIGN = "`status` and `doctor` notice that a job has reported no step and printed no line for minutes"
_CHECKS = (
    Remedy("See whether its pods still compute.", "pytorchjob top {job} -n {namespace}"),
    Remedy(
        "See the stack of a process, if the image has py-spy. PID 1 is the pod's first process; its children train.",
        "pytorchjob exec {job} -n {namespace} --rank 0 -- py-spy dump --pid 1 --subprocesses",
    ),
)

WATCHED = Cause(
    "SilentWithAgent",
    Symptom.SILENT,
    f"{_SIGN}; its command starts the agent.",
    _WHY,
    (
        Remedy(
            "Wait: once workers hang, the agent names rank, file and line, and restarts them (docs/elastic.md).",
            "pytorchjob status {job} -n {namespace} --watch",
        ),
        *_CHECKS,
    ),
    CauseLevel.OBSERVATION,
)
UNWATCHED = Cause(
    "SilentWithoutAgent",
    Symptom.SILENT,
    f"{_SIGN}; it has no agent.",
    _WHY,
    (
        *_CHECKS,
        *delete_and_apply(
            "Without the agent nothing finds a hang: set `spec.agent: {{inject: true}}` (docs/agent.md)."
        ),
    ),
    CauseLevel.OBSERVATION,
)
CAUSES = (WATCHED, UNWATCHED)


def find(seen: Seen) -> Iterator[Finding]:
    """Yield for how long a job that runs has been silent."""
    running = [pod for pod in seen.living_pods() if reading.runs(pod)]
    read = [reading.name_of(pod) for pod in running[:MOST_LOGS]]
    if not read or any(name not in seen.printed_at for name in read):
        return
    if state.decide(seen).state not in (state.State.TRAINING, state.State.RUNNING):
        return
    last = _last_sign(seen)
    if last is None or seen.now - last < _LEAST:
        return
    pods = "its pods" if len(running) <= MOST_LOGS else f"its first {MOST_LOGS} pods"
    values = {"time": age((seen.now - last).total_seconds()), "pods": pods}
    yield Finding(WATCHED if starts_agent(seen.job) else UNWATCHED, values, _evidence(seen, read))


def _last_sign(seen: Seen) -> datetime | None:
    """Return when anything of the script was seen last: a line, a step, a new pod, a container that began or ended."""
    restarted = reading.part(seen.status, "elastic", "lastRestart").get("time")
    progress = reading.part(seen.status, "progress").get("time")
    times = [*seen.printed_at.values(), read_time(restarted), read_time(progress)]
    times += [moment for pod in seen.pods for moment in _pod_times(pod)]
    return max((time for time in times if time is not None), default=None)


def _pod_times(pod: Object) -> Iterator[datetime | None]:
    main = reading.main_status(pod)
    yield reading.created_at(pod)
    yield read_time(reading.part(main, "state", "running").get("startedAt"))
    yield read_time(reading.part(main, "state", "terminated").get("finishedAt"))


def _evidence(seen: Seen, read: Sequence[str]) -> tuple[CauseEvidence, ...]:
    """Return the newest line of the pods that run."""
    times = [(time, name) for name in read if (time := seen.printed_at[name]) is not None]
    if not times:
        return (CauseEvidence(f"the logs of {len(read)} pods", "no line since their containers started"),)
    time, name = max(times)
    ago = age((seen.now - time).total_seconds())
    return (
        CauseEvidence(f"pod {name}, its last line, {ago} ago", reading.line_of(seen.last_lines.get(name)) or "empty"),
    )
