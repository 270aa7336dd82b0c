"""Which jobs get the agent: by their own field, else by their namespace's label, else by the operator's setting.

A job with pods keeps to what they have: label and setting may change, and two groups of pods would never join. A job
that cannot have the agent and does not ask for it is told nothing.
"""

from pytorchjob_operator.model import AgentPolicy, PyTorchJob
from pytorchjob_operator.names import AgentSource
from pytorchjob_operator.observed import AgentDefault, Observed
from pytorchjob_operator.plan import adoption
from pytorchjob_operator.plan.context import AgentChoice
from pytorchjob_operator.plan.environment import agent_variables
from pytorchjob_operator.plan.replicas import ReplicaComparison
from pytorchjob_operator.plan.writes import AgentUse


def decide(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> AgentChoice:
    """Choose, with the reason."""
    policy, options = job.spec.agent or AgentPolicy(), seen.options
    templates = [spec.template for _, spec in job.spec.pytorch_replica_specs.items()]
    injects = job.model_copy(
        update={"spec": job.spec.model_copy(update={"agent": policy.model_copy(update={"inject": True})})}
    )
    if policy.inject is False:
        return AgentChoice(job, AgentUse(False, AgentSource.JOB))
    if policy.inject is None and any(agent_variables.names_agent(template) for template in templates):
        return AgentChoice(job, AgentUse(False, AgentSource.IMAGE))
    can = [agent_variables.injected(injects, template, options) for template in templates]
    if not all(can) and not (policy.inject and any(can)):
        return AgentChoice(job, AgentUse(False, AgentSource.NO_EFFECT))
    if policy.inject:
        return AgentChoice(job, AgentUse(True, AgentSource.JOB))
    use = _use(seen, compared)
    asks = seen.namespace is None and use.source is AgentSource.OPERATOR
    return AgentChoice(injects if use.injects else job, use, asks)


def _use(seen: Observed, compared: ReplicaComparison) -> AgentUse:
    """Choose for a job that says nothing."""
    if pods := adoption.unfinished(compared) or seen.pods:
        return AgentUse(any(pod.injected for pod in pods), AgentSource.PODS)
    label = None if seen.namespace is None else seen.namespace.agent
    if label is not None:
        return AgentUse(label is AgentDefault.INJECT, AgentSource.NAMESPACE)
    return AgentUse(seen.options.agent_default is AgentDefault.INJECT, AgentSource.OPERATOR)
