"""Ranks for which the others wait: what `status.stragglers` names."""

from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, CauseLevel, Finding, Remedy, Symptom
from pytorchjob.view.seen import Seen

SLOW_RANK = Cause(
    "SlowRank",
    Symptom.SLOW,
    "`status.stragglers` names a rank, and the job has the event `StragglerFound`.",
    "Rank {rank} ({pod} on {node}) needs {percent} % more time outside collectives than the others, which wait for it.",
    (
        Remedy("See what else runs on its node, and the node's conditions.", "kubectl describe node {node}"),
        Remedy("Compare the clock speed and the temperature of its devices with those of another node."),
        Remedy(
            "If the node is the cause, keep new pods away and delete the pod: the operator creates it elsewhere.",
            "kubectl cordon {node} && kubectl delete pod {pod} -n {namespace}",
        ),
        Remedy("If the rank has more work by design, set `spec.agent.findStragglers: false`."),
    ),
    CauseLevel.CONSEQUENCE,
)
OWN_WORK = Cause(
    "OwnWorkOfRank",
    Symptom.SLOW,
    "`status.stragglers` names a rank with the line of the script at which only this rank works.",
    "Rank {rank} ({pod}) needs {percent} % more time outside collectives than the others, mostly at {place}, where only"
    " it works. Its node is not the cause.",
    (
        Remedy("Do this work less often, on all ranks, or in the background: logs, evaluation and files, for example."),
        Remedy("If the rank has more work by design, set `spec.agent.findStragglers: false`."),
    ),
    CauseLevel.CONSEQUENCE,
)
CAUSES = (SLOW_RANK, OWN_WORK)


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the slowest rank of a job that is not over."""
    if seen.ended:
        return
    listed = reading.items(seen.job, "status", "stragglers")
    named = [straggler for straggler in listed if reading.whole(straggler.get("rank")) is not None]
    if not named:
        return
    slowest = max(named, key=lambda straggler: reading.whole(straggler.get("percent")) or 0)
    pod, node = str(slowest.get("pod") or ""), str(slowest.get("node") or "NODE")
    place = str(slowest.get("place") or "")
    values = {"rank": str(slowest["rank"]), "pod": pod, "node": node, "percent": str(slowest.get("percent"))}
    if place:
        values["place"] = place
    others = f"{len(named)} ranks are named" if len(named) > 1 else f"since {slowest.get('since')}"
    yield Finding(OWN_WORK if place else SLOW_RANK, values, (CauseEvidence("status.stragglers", others),), (pod,))
