"""Which jobs get the agent that do not mention it: by their namespace's label, else by the operator's setting, where it
would have an effect.

The field of a job wins, also `inject: false`. A job whose pods run keeps to what they have: label and setting may
change, and two groups of pods would never join. Nothing is reported of a job that cannot have the agent: nobody has
asked for it.
"""

from pytorchjob_operator.model import AgentPolicy, PyTorchJob
from pytorchjob_operator.observed import AgentDefault, Observed
from pytorchjob_operator.plan import adoption
from pytorchjob_operator.plan.environment import agent_variables
from pytorchjob_operator.plan.replicas import ReplicaComparison


def apply(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> PyTorchJob:
    """Return the job as it is, or with the agent injected."""
    injects = _with_agent(seen, job)
    return job if injects is None or not _wanted(seen, compared) else injects


def asks(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> bool:
    """Return whether the decision needs the job's namespace, which has not been read."""
    return seen.namespace is None and not adoption.unfinished(compared) and _with_agent(seen, job) is not None


def _with_agent(seen: Observed, job: PyTorchJob) -> PyTorchJob | None:
    """Return the job with the agent injected; None if it says itself what it wants, or cannot have it."""
    policy = job.spec.agent or AgentPolicy()
    if policy.inject is not None:
        return None
    changed = policy.model_copy(update={"inject": True})
    injects = job.model_copy(update={"spec": job.spec.model_copy(update={"agent": changed})})
    templates = [spec.template for _, spec in job.spec.pytorch_replica_specs.items()]
    if any(agent_variables.names_agent(template) for template in templates):
        return None  # its image has the agent
    can = all(agent_variables.injected(injects, template, seen.options) for template in templates)
    return injects if can else None


def _wanted(seen: Observed, compared: ReplicaComparison) -> bool:
    """Return whether the pods that run have the agent; without any, what its namespace or the setting says."""
    if running := adoption.unfinished(compared):
        return any(pod.injected for pod in running)
    label = None if seen.namespace is None else seen.namespace.agent
    return (label or seen.options.agent_default) is AgentDefault.INJECT
