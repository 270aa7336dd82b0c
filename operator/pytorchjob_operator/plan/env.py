"""The contract env of one replica: where the master is, how many take part, and which of them this is."""

from dataclasses import replace

from pytorchjob_agent.contract import Rendezvous, ReplicaEnv
from pytorchjob_operator import names
from pytorchjob_operator.model import ElasticPolicy, PyTorchJob, master_port
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.replicas import Replica


def build_env(job: PyTorchJob, replica: Replica) -> ReplicaEnv:
    """Build the env of one replica by v1's table (contract A.7).

    Beyond v1, a job of workers only without an elasticPolicy gets rank and address too, with worker 0 as its master.
    """
    env = _shape(job)
    master = _master(job)
    if master is None:
        return env
    return replace(
        env,
        master_addr=names.host_name(job.metadata.name, master, 0),
        master_port=_port(job, master),
        world_size=replicas.total(job) * _processes(job.spec.nproc_per_node),
        rank=replica.index + (replicas.count(job, ReplicaType.MASTER) if replica.type is ReplicaType.WORKER else 0),
    )


def _master(job: PyTorchJob) -> ReplicaType | None:
    """The role whose replica 0 is the master; an elastic job without a Master finds its own by rendezvous."""
    if job.spec.pytorch_replica_specs.master is not None:
        return ReplicaType.MASTER
    return ReplicaType.WORKER if job.spec.elastic_policy is None else None


def _shape(job: PyTorchJob) -> ReplicaEnv:
    """What all replicas share: the number of nodes, processes per node, and the rendezvous of an elastic job."""
    elastic = job.spec.elastic_policy
    nproc = job.spec.nproc_per_node
    if elastic is None:
        total = replicas.total(job)
        return ReplicaEnv(nnodes_min=total, nnodes_max=total, nproc_per_node=nproc)
    if elastic.n_proc_per_node is not None:
        nproc = str(elastic.n_proc_per_node)
    workers = replicas.count(job, ReplicaType.WORKER)
    return ReplicaEnv(
        nnodes_min=elastic.min_replicas or workers,
        nnodes_max=elastic.max_replicas or workers,
        nproc_per_node=nproc,
        rdzv=_rendezvous(job, elastic),
        max_restarts=elastic.max_restarts,
        standalone=bool(elastic.standalone),
    )


def _rendezvous(job: PyTorchJob, elastic: ElasticPolicy) -> Rendezvous:
    rdzv = Rendezvous(
        host=elastic.rdzv_host or names.host_name(job.metadata.name, ReplicaType.WORKER, 0),
        port=elastic.rdzv_port or _port(job, ReplicaType.WORKER),
        id=elastic.rdzv_id,
        conf=tuple((one.key, one.value) for one in elastic.rdzv_conf or ()),
    )
    return replace(rdzv, backend=elastic.rdzv_backend) if elastic.rdzv_backend else rdzv


def _port(job: PyTorchJob, replica_type: ReplicaType) -> int:
    spec = job.spec.pytorch_replica_specs.get(replica_type)
    return names.DEFAULT_PORT if spec is None else master_port(spec.template)


def _processes(nproc_per_node: str | None) -> int:
    """Processes of one node as WORLD_SIZE counts them (contract A.7, row 6).

    `auto`, `cpu` and `gpu` count as one, and so does a number in the deprecated elasticPolicy.nProcPerNode.
    """
    text = nproc_per_node or ""
    return int(text) if text.isascii() and text.isdigit() else 1
