"""The contract variables of one replica: the master's address, the numbers of nodes and processes, its rank."""

from dataclasses import replace
from typing import Any

from pytorchjob_agent.contract.environment import DEFAULT_BACKEND, SEPARATE_STORES, RendezvousOptions, ReplicaEnv
from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType, ElasticPolicy, PyTorchJob, master_port
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.environment import agent_variables, nproc, rendezvous_conf
from pytorchjob_operator.plan.replicas import Replica

_STATIC = "static"
_IS_HOST = "is_host"


def build_env(job: PyTorchJob, replica: Replica, options: Options) -> ReplicaEnv:
    """Build the env of one replica by v1's table (docs/compatibility.md). `job` has its defaults.

    Unlike under v1, a job without a Master gets rank and address too, with worker 0 as its master. An elastic job
    without a Master gets neither: its master comes from the rendezvous.
    """
    env = _shape(job, replica, options)
    master = _master(job)
    if master is None:
        return env
    return replace(
        env,
        master_addr=_address(job, master, options),
        master_port=_port(job, master),
        world_size=replicas.total(job) * _processes(job.spec.nproc_per_node),
        rank=replicas.position(job, replica),
    )


def _master(job: PyTorchJob) -> ReplicaType | None:
    """Return the role whose replica 0 is the master; None for an elastic job that finds its master by rendezvous."""
    if job.spec.pytorch_replica_specs.master is not None:
        return ReplicaType.MASTER
    elastic = job.spec.elastic_policy
    return ReplicaType.WORKER if elastic is None or elastic.rdzv_backend == _STATIC else None


def _address(job: PyTorchJob, role: ReplicaType, options: Options) -> str:
    """Return the host name of a role's replica 0: by its own Service, as v1's pods need it, or by the job's."""
    name_of = names.pod_name if options.replica_services else names.host_name
    return name_of(job.metadata.name, role, 0)


def _shape(job: PyTorchJob, replica: Replica, options: Options) -> ReplicaEnv:
    """Return nodes, processes per node, and the rendezvous of an elastic job."""
    elastic, processes, template = job.spec.elastic_policy, _nproc(job, replica, options), _template(job, replica)
    low, high = nodes(job)
    here = ReplicaEnv(nnodes_min=low, nnodes_max=high, nproc_per_node=processes)
    if elastic is not None and elastic.n_proc_per_node is not None:
        here = replace(here, nproc_per_node=str(elastic.n_proc_per_node))
    if elastic is None:
        return here
    return replace(
        here,
        rdzv=_rendezvous(job, elastic, replica, options),
        max_restarts=elastic.max_restarts,
        standalone=bool(elastic.standalone),
        separate_stores=rendezvous_conf.separates_stores(elastic, options)
        and SEPARATE_STORES not in agent_variables.own_names(template),
    )


def nodes(job: PyTorchJob) -> tuple[int, int]:
    """Return the least and the most pods that train together.

    An elastic job counts only its workers (v1). A static rendezvous has a fixed size and counts every rank. A
    standalone run has one node; v1's range made torchrun wait for nodes that never come.
    """
    elastic = job.spec.elastic_policy
    if elastic is None or elastic.rdzv_backend == _STATIC:
        return replicas.total(job), replicas.total(job)
    if elastic.standalone:
        return 1, 1
    workers = replicas.count(job, ReplicaType.WORKER)
    return elastic.min_replicas or workers, elastic.max_replicas or workers


def _nproc(job: PyTorchJob, replica: Replica, options: Options) -> str | None:
    return nproc.per_node(job.spec.nproc_per_node, _template(job, replica), options.accelerators)


def _template(job: PyTorchJob, replica: Replica) -> dict[str, Any]:
    spec = job.spec.pytorch_replica_specs.get(replica.type)
    return spec.template if spec else {}


def _rendezvous(job: PyTorchJob, elastic: ElasticPolicy, replica: Replica, options: Options) -> RendezvousOptions:
    backend = elastic.rdzv_backend or DEFAULT_BACKEND
    host_role = _master(job) if backend == _STATIC else None
    return RendezvousOptions(
        host=elastic.rdzv_host or _address(job, host_role or ReplicaType.WORKER, options),
        port=elastic.rdzv_port or _port(job, host_role or ReplicaType.WORKER),
        backend=backend,
        id=elastic.rdzv_id if options.legacy else _run_id(job, elastic, backend),
        conf=_conf(job, elastic, replica, options),
    )


def _run_id(job: PyTorchJob, elastic: ElasticPolicy, backend: str) -> str | None:
    """Return the run id, by which members find each other.

    A c10d store ends with the job's pods, and pods of v1 must find new pods, so the user's id stays. A store that
    outlives the job keeps finished runs as closed, so each attempt gets its own id.
    """
    if backend in (DEFAULT_BACKEND, _STATIC):
        return elastic.rdzv_id
    run_id, status = elastic.rdzv_id or job.metadata.uid or None, job.status
    if run_id is None or status.start_time is None or status.condition(ConditionType.SUSPENDED) is None:
        return run_id
    return f"{run_id}-{status.start_time:%Y%m%dT%H%M%S}"


def _conf(job: PyTorchJob, elastic: ElasticPolicy, replica: Replica, options: Options) -> tuple[tuple[str, str], ...]:
    """Return the user's settings, then additions for keys that the user did not set."""
    given = rendezvous_conf.given_conf(elastic, _template(job, replica))
    if given is None:
        return ()
    added = (*_store_host(job, elastic, replica), *rendezvous_conf.timings(elastic, options))
    known = {key for key, _ in given}
    return (*given, *(setting for setting in added if setting[0] not in known))


def _store_host(job: PyTorchJob, elastic: ElasticPolicy, replica: Replica) -> tuple[tuple[str, str], ...]:
    """Return the setting by which only worker 0 opens the store of torch's c10d rendezvous.

    Without it torch compares host names, which fails on worker 0 until DNS has its name.
    """
    first = Replica(ReplicaType.WORKER, 0)
    own = (None, *(make(job.metadata.name, first.type, first.index) for make in (names.pod_name, names.host_name)))
    if elastic.standalone or elastic.rdzv_host not in own:
        return ()
    if (elastic.rdzv_backend or DEFAULT_BACKEND) != DEFAULT_BACKEND:
        return ()
    return ((_IS_HOST, "true" if replica == first else "false"),)


def _port(job: PyTorchJob, replica_type: ReplicaType) -> int:
    spec = job.spec.pytorch_replica_specs.get(replica_type)
    return names.DEFAULT_PORT if spec is None else master_port(spec.template)


def _processes(nproc_per_node: str | None) -> int:
    """Return the processes of a node as WORLD_SIZE counts them (docs/compatibility.md).

    `auto`, `cpu` and `gpu` count as 1, and so does a number in the deprecated elasticPolicy.nProcPerNode.
    """
    text = nproc_per_node or ""
    return int(text) if text.isascii() and text.isdigit() else 1
