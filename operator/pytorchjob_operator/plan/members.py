"""Which pods of a job are members of a round: the roles that train with the coordinator, and how many a round needs."""

from pytorchjob_operator.model import PyTorchJob, main_container
from pytorchjob_operator.names import IN_AGENT_COMMANDS, ReplicaType
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.environment import agent_variables
from pytorchjob_operator.plan.environment.replica import nodes


def coordinated_roles(job: PyTorchJob, options: Options) -> frozenset[ReplicaType]:
    """Return the roles whose pods train with the coordinator."""
    return frozenset(
        role
        for role, spec in job.spec.pytorch_replica_specs.items()
        if agent_variables.coordinator(job, spec.template, options) is not None
    )


def limits(job: PyTorchJob) -> tuple[int, int]:
    """Return the least and the most pods of a round; the Master takes part in addition to an elastic job's workers."""
    master = replicas.count(job, ReplicaType.MASTER)
    if job.spec.elastic_policy is None:
        return replicas.total(job), replicas.total(job)
    least, most = nodes(job)
    return least + master, most + master


def starts_agents(job: PyTorchJob) -> bool:
    """Whether replicas of the job are expected to run the agent."""
    containers = [main_container(spec.template) or {} for _, spec in job.spec.pytorch_replica_specs.items()]
    words = [str(word) for main in containers for word in (*(main.get("command") or ()), *(main.get("args") or ()))]
    return job.spec.agent is not None or any(IN_AGENT_COMMANDS in word for word in words)
