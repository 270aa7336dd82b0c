"""Pods with an injected agent of which none reports: their command starts nothing that becomes a member.

The job trains as it would without the agent. Nobody notices that until a worker hangs or a pod is lost: so a condition
says it. A command may install packages first, which takes minutes.
"""

from datetime import datetime, timedelta

from pytorchjob_operator.model import ConditionType
from pytorchjob_operator.names import Reason
from pytorchjob_operator.plan import conditions, elastic
from pytorchjob_operator.plan.context import Context

PATIENCE = timedelta(minutes=5)
"""How long all pods have been ready before the job is said to train without the agent."""
_WORDS = (
    f"all pods have been ready for {PATIENCE.seconds // 60} minutes, and no agent has reported: the job trains"
    " without it so far. The pods' logs may say why; docs/agent.md lists the commands that the agent supports"
)


def problem(context: Context) -> tuple[Reason, str] | None:
    """Return reason and message of the condition ConfigValid; None while an agent reports, or may still do so.

    Once said, it stays while the pods end: it is about the run.
    """
    if _reported(context):
        return None
    shown = conditions.find(context.seen.job.status.conditions, ConditionType.CONFIG_VALID)
    said = shown is not None and shown.reason == Reason.AGENT_ABSENT
    due = _due(context)
    return (Reason.AGENT_ABSENT, _WORDS) if said or (due is not None and due <= context.seen.now) else None


def next_check(context: Context) -> datetime | None:
    """Return when to look again; None if nothing changes by itself."""
    due = _due(context)
    return due if due is not None and due > context.seen.now else None


def _due(context: Context) -> datetime | None:
    """Return when the agents have had their time; None if that is not the question."""
    pods = [*context.compared.present.values()]
    ready = [pod.ready_since for pod in pods if pod.active and pod.ready and pod.ready_since is not None]
    all_ready = ready and len(ready) == len(pods) and not context.compared.missing
    return max(ready) + PATIENCE if all_ready and not _reported(context) else None


def _reported(context: Context) -> bool:
    """Whether an agent of this job has reported, or need not; True while the coordinator has told nothing of the job.

    Of a job that is told to have the agent by its namespace or the operator, nobody expects one.
    """
    policy, report = context.seen.job.spec.agent, context.seen.report
    if policy is None or not policy.inject or not context.agent.use.injects or report is None:
        return True
    return bool(report.round or report.waiting or report.spares or report.problems) or elastic.has_trained(context.seen)
