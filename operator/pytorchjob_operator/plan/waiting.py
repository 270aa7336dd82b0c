"""Why a job that does not run waits, for the condition Waiting: a reason and a message.

Checked in this order: may the pods be created, and if they exist, which problems do they have. While the job runs,
`pod_events` reports the problems of pods.
"""

from collections import Counter
from collections.abc import Iterable

from pytorchjob_operator.observed import Pod, PodProblem
from pytorchjob_operator.plan import gang, replicas
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import JobPhase, Outcome

_WAITS = (JobPhase.PENDING, JobPhase.RESTARTING)


def decide(context: Context, outcome: Outcome) -> PodProblem | None:
    """Return what the job waits for, if there is a known reason."""
    if outcome.phase is JobPhase.QUEUED:
        return context.queueing.problem
    if outcome.phase not in _WAITS:
        return None
    present = context.compared.present
    return gang.problem(context) or _commonest(
        present[replica] for replica in replicas.wanted(context.job) if replica in present
    )


def _commonest(pods: Iterable[Pod]) -> PodProblem | None:
    """Return the problem that most pods have, with the message of the first of them."""
    affected = [pod for pod in pods if pod.problem is not None and not (pod.deleting or pod.failed)]
    counts = Counter(pod.problem.reason for pod in affected if pod.problem)
    if not counts:
        return None
    reason = counts.most_common(1)[0][0]
    first = next(pod for pod in affected if pod.problem and pod.problem.reason == reason)
    others = f" (and {counts[reason] - 1} more)" if counts[reason] > 1 else ""
    assert first.problem is not None
    return PodProblem(reason, f"pod {first.name}: {first.problem.message}{others}")
