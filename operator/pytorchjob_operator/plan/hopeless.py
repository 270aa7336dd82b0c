"""Jobs that no restart can help: the agent's own verdicts and repeated early exits end them, crash loops are shown.

A plain container keeps v1's restarts in a cluster: only the condition Degraded reports its crash loop. An agent knows
more. Without torch, or with a wrong command line, its container ends the same way every time; and a pod that it found
unfit, by its preflight checks or by a broken device, may be fit on another node. A job that trains meanwhile does not
end.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pytorchjob_agent.contract.reasons import UNFIT_NODE, EndReason, ExitReason, FailureKind
from pytorchjob_agent.contract.termination import exit_code_of
from pytorchjob_operator.model import FirstFailureStatus, PyTorchJob, UnfitPod
from pytorchjob_operator.model.status import MAX_UNFIT
from pytorchjob_operator.names import CONTAINER, Reason
from pytorchjob_operator.observed import Observed, Pod, PodProblem
from pytorchjob_operator.plan import replicas, restart
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import WITHOUT_PODS, Outcome, failed
from pytorchjob_operator.plan.replicas import ReplicaComparison
from pytorchjob_operator.problem import Crash

ATTEMPTS = 3
"""The same verdict this often in a row ends the job. The first may be an accident, such as a volume that is missing."""
CALM = timedelta(seconds=120)
"""A container that runs this long again is out of its crash loop."""
_FROM_OUTSIDE = (exit_code_of(-9), exit_code_of(-15))
"""Exit codes of a container that was killed or stopped: its program is not the cause."""
_PERMANENT = (ExitReason.NO_TORCH, ExitReason.BAD_SETUP, ExitReason.BAD_USAGE)
"""The agent's verdicts that every start repeats."""
_MAY_PASS = (
    *UNFIT_NODE,
    ExitReason.RENDEZVOUS_FAILED,
    ExitReason.COORDINATOR_UNREACHABLE,
    ExitReason.AGENT_REFUSED,
    ExitReason.FENCED,
    ExitReason.DRAINED,
)
"""The agent's verdicts of which the program is not the cause: an unfit node, no peers, a replaced or drained pod."""


def crashed(job: PyTorchJob, compared: ReplicaComparison) -> tuple[tuple[Pod, Crash], ...]:
    """Return the wanted pods whose container ended soon after its start, in the order of ranks."""
    # Few pods crash, so the pods of a large job are only filtered, not sorted.
    found = [
        (replica, pod, pod.crash)
        for replica, pod in compared.present.items()
        if pod.crash is not None and not pod.deleting
    ]
    found.sort(key=lambda item: replicas.position(job, item[0]))
    return tuple((pod, crash) for _, pod, crash in found)


def unfit(seen: Observed, job: PyTorchJob, found: Sequence[tuple[Pod, Crash]]) -> tuple[UnfitPod, ...]:
    """Return the pods that were unfit since all replicas last trained together, the newest last.

    `found` are the crashed pods.
    """
    stored = () if _all_train(seen, job) else seen.job.status.unfit_pods or ()
    known = {pod.uid for pod in stored}
    new = (
        UnfitPod(name=pod.name, uid=pod.uid, node=pod.node)
        for pod, crash in found
        if crash.unfit and pod.uid not in known
    )
    return (*stored, *new)[-MAX_UNFIT:]


def verdict(context: Context) -> Outcome | None:
    """Return the failure of a job that cannot run; None otherwise, and while a round trains."""
    if _trains(context):
        return None
    for pod, crash in context.crashed:
        if why := _permanent(context, pod, crash) or _unfit(pod, crash, context.unfit):
            code, words = min(max(crash.code, 0), 255), crash.message[:1024]
            first = FirstFailureStatus(kind=FailureKind.EXITED, pod=pod.name, exit_code=code, message=words or None)
            return failed(EndReason.HOPELESS, why, first)
    return None


def problem(context: Context, outcome: Outcome) -> PodProblem | None:
    """Return the crash loop of a job that is not over, with the last line of the first replica in it."""
    looping = [(pod, crash) for pod, crash in context.crashed if _loops(pod, crash, context.seen.now)]
    if outcome.phase in WITHOUT_PODS or not looping:
        return None
    pod, crash = looping[0]
    others = f" ({len(looping) - 1} more pods do the same)" if len(looping) > 1 else ""
    limited = context.job.spec.run_policy.backoff_limit is not None
    return PodProblem(
        Reason.CRASH_LOOP,
        f"pod {pod.name} has ended {crash.exits} times, each time soon after its start: {_exit(crash)}{others}."
        f" Read `kubectl logs {pod.name} -c {CONTAINER} --previous`, then correct the image, the command or the script"
        f"{'' if limited else '; runPolicy.backoffLimit limits the restarts'}",
    )


def next_check(context: Context, outcome: Outcome) -> datetime | None:
    """Return when a container that runs again is out of its crash loop; None without one."""
    now = context.seen.now
    looping = (crash for pod, crash in context.crashed if _loops(pod, crash, now))
    times = [crash.running_since + CALM for crash in looping if crash.running_since is not None]
    return min(times, default=None) if outcome.phase not in WITHOUT_PODS else None


def _permanent(context: Context, pod: Pod, crash: Crash) -> str | None:
    """Return why the container of this pod ends the same way every time; None if another start may help."""
    early = context.seen.options.early_exits
    repeats = 0 < early <= crash.exits and crash.code not in _FROM_OUTSIDE and crash.reason not in _MAY_PASS
    if not repeats and (crash.reason not in _PERMANENT or crash.exits < ATTEMPTS):
        return None
    return (
        f"pod {pod.name} ended {crash.exits} times in a row soon after its start: {_exit(crash)}."
        " Another restart would not help: correct the image, the command or the script"
    )


def _unfit(pod: Pod, crash: Crash, listed: tuple[UnfitPod, ...]) -> str | None:
    """Return why no node was fit for this replica; None while another node may be tried."""
    tried = [known for known in listed if known.name == pod.name]
    if len(tried) < restart.UNFIT_PODS or not crash.unfit:
        return None
    nodes = ", ".join(dict.fromkeys(known.node for known in tried if known.node)) or "this machine"
    return f"pod {pod.name} was unfit for the job {len(tried)} times (on {nodes}), last: {crash.message}"


def _loops(pod: Pod, crash: Crash, now: datetime) -> bool:
    """Whether the kubelet restarts the container again and again."""
    calm = crash.running_since is not None and now >= crash.running_since + CALM
    return pod.active and crash.exits >= ATTEMPTS and not calm


def _exit(crash: Crash) -> str:
    """Return how a container ended: the agent's reason, or the exit code and the last line."""
    if crash.reason:
        return f"{crash.reason}: {crash.message}"
    return f"exit code {crash.code}{f', {crash.message}' if crash.message else ' without a message'}"


def _trains(context: Context) -> bool:
    return context.seen.report is not None and context.seen.report.running


def _all_train(seen: Observed, job: PyTorchJob) -> bool:
    return seen.report is not None and seen.report.running and seen.report.members >= replicas.total(job)
