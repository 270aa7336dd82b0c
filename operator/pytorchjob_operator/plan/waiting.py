"""Why a job that does not run yet, or no longer, waits: the condition Waiting says it in one reason and one sentence.

Looked at in the order in which a person would: may the pods be made at all, and if they are there, what do they lack.
While the job runs, a pod's trouble is an event's business.
"""

from collections import Counter
from collections.abc import Iterable

from pytorchjob_operator.observed import Pod, PodProblem
from pytorchjob_operator.plan import gang, replicas
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import Outcome, Phase

_WAITS = (Phase.PENDING, Phase.RESTARTING)


def decide(context: Context, outcome: Outcome) -> PodProblem | None:
    """What the job waits for, if it waits for something that a person can name."""
    if outcome.phase not in _WAITS:
        return None
    there = context.compared.present
    return gang.problem(context) or _worst(there[one] for one in replicas.wanted(context.job) if one in there)


def _worst(pods: Iterable[Pod]) -> PodProblem | None:
    """The trouble that most pods have, told by the first of them."""
    troubled = [pod for pod in pods if pod.problem is not None and not (pod.deleting or pod.failed)]
    counts = Counter(pod.problem.reason for pod in troubled if pod.problem)
    if not counts:
        return None
    reason = counts.most_common(1)[0][0]
    first = next(pod for pod in troubled if pod.problem and pod.problem.reason == reason)
    others = f" (and {counts[reason] - 1} more)" if counts[reason] > 1 else ""
    assert first.problem is not None
    return PodProblem(reason, f"pod {first.name}: {first.problem.message}{others}")
