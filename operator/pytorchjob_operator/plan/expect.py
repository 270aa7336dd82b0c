"""What the coordinator is told of a job: how many members make a round, how often workers may fail, and which pods
there are.

The numbers are those that the pods' env says. A budget that the user gave counts here as it does under torchrun, per
job instead of per pod; without one, workers are started again as long as that leads anywhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytorchjob_operator.model import ElasticPolicy, PyTorchJob, RestartPolicy
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Options, Pod
from pytorchjob_operator.plan import agent, env, replicas, restart
from pytorchjob_operator.plan.replicas import Replica
from pytorchjob_operator.rounds.state import Policy, Seat

LAST_CALL = "last_call_timeout"
JOIN = "join_timeout"
"""Keys of rdzvConf, as torch's c10d knows them: seconds."""
_LONGEST = 30 * 86_400.0
_MAX_TROUBLE = 300


def expect(job: PyTorchJob, options: Options, pods: tuple[Pod, ...]) -> tuple[Policy, dict[int, Seat]] | None:
    """Return the job's policy and its pods by index; None for a job whose pods do without the coordinator.

    `job` has its defaults.
    """
    led = {
        role
        for role, spec in job.spec.pytorch_replica_specs.items()
        if agent.coordinator(job, spec.template, options) is not None
    }
    present = replicas.compare(job, pods).present
    if not led or any(pod.nameless or pod.unled for pod in present.values() if not pod.deleting and not pod.failed):
        return None
    seats = {
        replicas.position(job, replica): _seat(pod)
        for replica, pod in present.items()
        if replica.type in led and not pod.deleting and not pod.failed
    }
    return _policy(job, options), seats


def _seat(pod: Pod) -> Seat:
    trouble = pod.trouble
    words = f"{trouble.reason}: {trouble.message}"[:_MAX_TROUBLE] if trouble else ""
    return Seat(pod.name, pod.uid, words, pod.succeeded)


def _policy(job: PyTorchJob, options: Options) -> Policy:
    elastic, spec = job.spec.elastic_policy, job.spec
    least, most = _members(job, options)
    found = Policy(
        least=least,
        most=most,
        restarts=_restarts(job),
        window=spec.agent.restart_window_seconds if spec.agent else None,
        retry_from=restart.FIRST_RETRYABLE if RestartPolicy.EXIT_CODE in _policies(job) else 0,
    )
    last_call, join = _seconds(elastic, LAST_CALL), _seconds(elastic, JOIN)
    found = found if last_call is None else replace(found, last_call=last_call)
    return found if join is None else replace(found, timeout=join)


def _members(job: PyTorchJob, options: Options) -> tuple[int, int]:
    """How many pods make a round; an elastic job's range counts its workers, the Master takes part beside them."""
    master = replicas.count(job, ReplicaType.MASTER)
    if job.spec.elastic_policy is None:
        return replicas.total(job), replicas.total(job)
    told = env.build_env(job, Replica(ReplicaType.WORKER, 0), options)
    return told.nnodes_min + master, told.nnodes_max + master


def _restarts(job: PyTorchJob) -> int | None:
    """How many failures are forgiven; None: as many as lead anywhere."""
    elastic, limit = job.spec.elastic_policy, job.spec.run_policy.backoff_limit
    if elastic is not None and elastic.max_restarts is not None:
        return elastic.max_restarts
    if RestartPolicy.NEVER in _policies(job):
        return 0
    return None if limit is None else max(limit, 1) - 1  # as under v1, the n-th restart is one too many


def _policies(job: PyTorchJob) -> Sequence[RestartPolicy]:
    return [replicas.restart_policy(spec) for _, spec in job.spec.pytorch_replica_specs.items()]


def _seconds(elastic: ElasticPolicy | None, key: str) -> float | None:
    """A number of seconds from rdzvConf; None where it is not given, or is none."""
    given: Iterable[str] = (one.value for one in (elastic and elastic.rdzv_conf) or () if one.key == key)
    for text in given:
        try:
            seconds = float(text)
        except ValueError:
            return None
        return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST else None
    return None
