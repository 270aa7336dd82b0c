"""Why a job that does not run yet, or no longer, waits: the condition Waiting says it in one reason and one sentence.

Looked at in the order in which a person would: may the pods be made at all, and if they are there, what do they lack.
While the job runs, a pod's trouble is an event's business.
"""

from collections import Counter
from collections.abc import Iterable

from pytorchjob_operator.observed import Pod, Trouble
from pytorchjob_operator.plan import gang, replicas
from pytorchjob_operator.plan.look import Look
from pytorchjob_operator.plan.outcome import Outcome, Phase

_WAITS = (Phase.PENDING, Phase.RESTARTING)


def decide(look: Look, outcome: Outcome) -> Trouble | None:
    """What the job waits for, if it waits for something that a person can name."""
    if outcome.phase not in _WAITS:
        return None
    there = look.compared.present
    return gang.trouble(look) or _worst(there[one] for one in replicas.wanted(look.job) if one in there)


def _worst(pods: Iterable[Pod]) -> Trouble | None:
    """The trouble that most pods have, told by the first of them."""
    troubled = [pod for pod in pods if pod.trouble is not None and not (pod.deleting or pod.failed)]
    counts = Counter(pod.trouble.reason for pod in troubled if pod.trouble)
    if not counts:
        return None
    reason = counts.most_common(1)[0][0]
    first = next(pod for pod in troubled if pod.trouble and pod.trouble.reason == reason)
    others = f" (and {counts[reason] - 1} more)" if counts[reason] > 1 else ""
    assert first.trouble is not None
    return Trouble(reason, f"pod {first.name}: {first.trouble.message}{others}")
