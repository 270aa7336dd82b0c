"""Why a running pod may be lost soon: its node announces that, or its own status does.

The coordinator hears of it and asks the workers to save (`rounds/threats`), and `reserves` may keep a place elsewhere.
A cordon, a taint or a broken device does not prove that the pod is lost, so nothing is deleted because of it.
"""

from pytorchjob_operator.observed import Observed, Pod, PodPhase


def find(seen: Observed, pod: Pod) -> str:
    """Return the reason as a clause without a subject; empty if nothing is known, or if the pod does not run."""
    if pod.phase is not PodPhase.RUNNING or pod.deleting:
        return ""
    node = seen.marked.get(pod.node)
    return pod.threat or (node.threat(pod.tolerations) if node is not None else "")
