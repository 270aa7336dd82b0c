"""What the coordinator must know about a job after this pass: how many members form a round, how often workers may
fail, and which pods to expect; or that the job has ended, or trains without the coordinator.

The numbers are those in the pods' environment. A restart budget from the user counts per job, where torchrun counts it
per pod. Without a budget, failed workers are restarted as long as training makes progress.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from pytorchjob_operator import names
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Finish, Forget, Sync
from pytorchjob_operator.model import ConditionType, ElasticPolicy, PyTorchJob, RestartPolicy, StartMode, SurviveMode
from pytorchjob_operator.names import LossCause
from pytorchjob_operator.observed import Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import elastic, job_limits, members, replicas, restart, threats
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.replicas import Replica
from pytorchjob_operator.rounds.values import ExpectedPod, Policy

LAST_CALL = "last_call_timeout"
JOIN = "join_timeout"
"""Keys of rdzvConf, as torch's c10d knows them: seconds."""
_WARM_REJOIN_SECONDS = 0.3
"""Warm workers start again in this time, so a longer wait for a lost member costs more than one more round."""
_LONGEST = 30 * 86_400.0
_MAX_PROBLEM = 300
_KILL_SECONDS = 30
"""After a pod's grace period, how long its kubelet may take to kill its processes and to report that it is gone."""
_AT_REST = (PodPhase.SUCCEEDED, PodPhase.FAILED)


def decide(context: Context, end: ConditionType | None) -> CoordinatorUpdate:
    """Decide about a job that the operator manages; `end` is the end that its status records, if any."""
    stopped = context.job.spec.run_policy.suspend or context.queueing.stops
    if stopped or not context.roles or _trains_without(context):
        return Forget()
    if end is None:
        job = context.job
        return Sync(
            _policy(job, context.seen.options),
            _expected_pods(context),
            job.metadata.name,
            job.metadata.namespace,
            elastic.known_restarts(context),
            _terminating_pods(context),
            elastic.has_trained(context.seen),
            context.stage,
            context.ledger,
        )
    if all(pod.phase in _AT_REST or pod.without_coordinator for pod in context.seen.pods):
        return Forget()
    return Finish(failed=end is ConditionType.FAILED)


def _trains_without(context: Context) -> bool:
    """Whether a pod without the coordinator takes part: then the whole job trains without it."""
    return any(pod.without_coordinator for pod in context.compared.present.values() if _takes_part(pod))


def _expected_pods(context: Context) -> dict[int, ExpectedPod]:
    return {
        replicas.position(context.job, replica): _expected_pod(pod, context.seen)
        for replica, pod in context.compared.present.items()
        if replica.type in context.roles and _takes_part(pod)
    }


def next_check(context: Context) -> datetime | None:
    """Return when the next pod that terminates counts as gone although the API server still has it; None if none."""
    if not context.roles:
        return None
    times = (_killed_by(pod) for pod in context.seen.pods if pod.deleting and _may_run(pod, context.seen.now))
    return min((time for time in times if time is not None), default=None)


def _terminating_pods(context: Context) -> dict[int, str]:
    """Return the uids of the pods that are not expected any more, or about to be deleted, and may still train."""
    job, surplus = context.job, {pod.uid for pod in context.compared.surplus}
    return {
        replicas.position(job, Replica(pod.replica_type, pod.index)): pod.uid
        for pod in context.seen.pods
        if (pod.deleting or pod.uid in surplus)
        and pod.replica_type in context.roles
        and pod.index is not None
        and pod.name == names.pod_name(job.metadata.name, pod.replica_type, pod.index)
        and _may_run(pod, context.seen.now)
    }


def _may_run(pod: Pod, now: datetime) -> bool:
    """Whether processes of a pod that is deleted, or about to be, may still run.

    They do not if its node is lost, if it was deleted by force, or if its kubelet must have killed them: the same holds
    for the job's other pods, so that no job waits for a node that never comes back.
    """
    if pod.phase in _AT_REST or pod.cause is LossCause.NODE_LOST:
        return False
    killed_by = _killed_by(pod)
    return not pod.deleting or (killed_by is not None and now < killed_by)


def _killed_by(pod: Pod) -> datetime | None:
    """Return when the kubelet has killed the pod's processes, and has reported it; None without a grace period."""
    return job_limits.after(pod.deleted_at, _KILL_SECONDS)


def _takes_part(pod: Pod) -> bool:
    return not pod.deleting and not pod.failed


def _expected_pod(pod: Pod, seen: Observed) -> ExpectedPod:
    problem = pod.problem
    words = f"{problem.reason}: {problem.message}"[:_MAX_PROBLEM] if problem else ""
    zone = seen.zones.get(pod.node) or pod.zone
    return ExpectedPod(pod.name, pod.uid, words, pod.succeeded, threats.find(seen, pod), zone)


def _policy(job: PyTorchJob, options: Options) -> Policy:
    elastic, spec = job.spec.elastic_policy, job.spec
    least, most = members.limits(job)
    found = Policy(
        min_members=least,
        max_members=most,
        max_restarts=_restarts(job),
        restart_window=spec.agent.restart_window_seconds if spec.agent else None,
        first_retryable_exit_code=restart.FIRST_RETRYABLE if RestartPolicy.EXIT_CODE in _policies(job) else 0,
    )
    found = replace(found, early_errors=options.early_exits) if options.early_exits else found
    warm = spec.agent is not None and spec.agent.start_mode not in (None, StartMode.COLD)
    found = replace(found, rejoin_timeout=_WARM_REJOIN_SECONDS) if warm else found
    if spec.agent is not None and spec.agent.survive is SurviveMode.AUTO:
        within = spec.agent.rejoin_within_seconds
        found = replace(found, survive=True, rejoin_within=found.rejoin_within if within is None else float(within))
    last_call, join = _seconds(elastic, LAST_CALL), _seconds(elastic, JOIN)
    found = found if last_call is None else replace(found, last_call_timeout=last_call)
    return found if join is None else replace(found, join_timeout=join)


def _restarts(job: PyTorchJob) -> int | None:
    """Return how many failures are allowed; None: unlimited while training makes progress."""
    elastic, limit = job.spec.elastic_policy, job.spec.run_policy.backoff_limit
    if elastic is not None and elastic.max_restarts is not None:
        return elastic.max_restarts
    if RestartPolicy.NEVER in _policies(job):
        return 0
    return None if limit is None else max(limit, 1) - 1  # as under v1, the n-th restart is one too many


def _policies(job: PyTorchJob) -> Sequence[RestartPolicy]:
    return [replicas.restart_policy(spec) for _, spec in job.spec.pytorch_replica_specs.items()]


def _seconds(elastic: ElasticPolicy | None, key: str) -> float | None:
    """Return a number of seconds from rdzvConf; None if it is missing or not a number."""
    given: Iterable[str] = (setting.value for setting in (elastic and elastic.rdzv_conf) or () if setting.key == key)
    for text in given:
        try:
            seconds = float(text)
        except ValueError:
            return None
        return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST else None
    return None
