"""The agent's variables of a pod: the coordinator's endpoint, and the settings of spec.agent.

The user's choice of a rendezvous wins: a job that names a backend or a host, in its policy or in its pods' environment,
trains without the coordinator; an injected agent takes the place of c10d, by which v1's elastic jobs find each other.
So does a template that starts torchrun or Python and no agent: its pods stay as v1 made them. Only container `pytorch`
gets these variables.
"""

import json
from collections.abc import Iterator
from typing import Any

from pytorchjob_agent.contract import coordinator_endpoint
from pytorchjob_agent.contract.cache_rules import CACHES
from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT
from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.environment import (
    DEFAULT_BACKEND,
    FENCE,
    FIND_STRAGGLERS,
    GPUS,
    GRACE,
    NODE,
    OBSERVE_PROGRESS,
    PET_RDZV_BACKEND,
    PET_RDZV_ENDPOINT,
    PREFLIGHT,
    PRELOAD,
    START_MODE,
    SURVIVE,
)
from pytorchjob_agent.contract.hang_rules import HANG
from pytorchjob_operator import names
from pytorchjob_operator.model import AgentPolicy, ElasticPolicy, PyTorchJob, SurviveMode, main_container
from pytorchjob_operator.names import Reason
from pytorchjob_operator.observed import CoordinatorAccess, Options
from pytorchjob_operator.plan import cache_volume, checkpoint_memory, credential, replicas
from pytorchjob_operator.plan.environment import nproc
from pytorchjob_operator.plan.replicas import Replica

_CHOICES = (PET_RDZV_BACKEND, PET_RDZV_ENDPOINT, coordinator_endpoint.COORDINATOR)

_PLAIN = ("torchrun", "python")

DEFAULT_TERMINATION = 30
"""Kubernetes' default of terminationGracePeriodSeconds."""
_SPARE_SECONDS = 5
"""The part of it that the kubelet needs."""

Variable = dict[str, Any]


def coordinator(job: PyTorchJob, template: dict[str, Any], options: Options) -> CoordinatorAccess | None:
    """Return the coordinator that the pods of this template train with; None if they train without it."""
    return None if _refusal(job, template, options) else options.coordinator


def injected(job: PyTorchJob, template: dict[str, Any], options: Options) -> bool:
    """Whether the operator installs the agent in the pods of this template."""
    wanted = job.spec.agent is not None and bool(job.spec.agent.inject)
    return wanted and bool(options.agent_image) and coordinator(job, template, options) is not None


def keeps_caches(job: PyTorchJob, template: dict[str, Any], options: Options) -> bool:
    """Whether pods of this template keep caches: those that are expected to start an agent, unless the user opts out.

    All others stay as they are.
    """
    policy = job.spec.agent
    starts_agent = names_agent(template)
    if policy is not None:
        starts_agent = starts_agent or bool(policy.inject) or not _starts_no_agent(template)
    wanted = starts_agent and (policy is None or policy.caches is not False)
    return wanted and coordinator(job, template, options) is not None


def variables(job: PyTorchJob, replica: Replica, options: Options) -> list[Variable]:
    """Return the variables of container `pytorch` of one replica besides the contract's."""
    spec = job.spec.pytorch_replica_specs.get(replica.type)
    template = spec.template if spec else {}
    given, at = own_names(template), coordinator(job, template, options)
    endpoint = [] if at is None else _endpoint(job, replica, at)
    settings = [*_settings(job.spec.agent or AgentPolicy()), *([] if at is None else _grace(template))]
    if at is not None and (gpus := nproc.gpus(template)):
        settings.append({"name": GPUS, "value": str(gpus)})
    if keeps_caches(job, template, options):
        settings.append({"name": CACHES, "value": cache_volume.rules(template).to_json()})
    return [*endpoint, *(setting for setting in settings if setting["name"] not in given)]


def problem(job: PyTorchJob, options: Options) -> tuple[Reason, str] | None:
    """Return why the agent is not injected although the user wants it, for the condition ConfigValid; else None."""
    if job.spec.agent is None or not job.spec.agent.inject:
        return None
    refusals = (_refusal(job, spec.template, options) for _, spec in job.spec.pytorch_replica_specs.items())
    why = next((refusal for refusal in refusals if refusal), None)
    if why is None and not options.agent_image:
        why = "the operator has no agent image"
    return (Reason.AGENT_UNAVAILABLE, f"spec.agent.inject has no effect: {why}") if why else None


def own_names(template: dict[str, Any]) -> set[str]:
    """Return the names of the variables that the user sets in container `pytorch`."""
    return {str(variable.get("name")) for variable in (main_container(template) or {}).get("env") or ()}


def _refusal(job: PyTorchJob, template: dict[str, Any], options: Options) -> str | None:
    """Return why pods of this template train without the coordinator; None if they train with it."""
    policy = job.spec.agent
    field = _chosen(job.spec.elastic_policy or ElasticPolicy(), injects=policy is not None and bool(policy.inject))
    if field is not None:
        return f"elasticPolicy.{field} chooses another rendezvous"
    found = own_names(template).intersection(_CHOICES)
    if found:
        return f"container {names.CONTAINER} has its own {min(found)}"
    if options.legacy:
        return "the job has pods that training-operator v1 created"
    if job.spec.agent is None and _starts_no_agent(template):
        return f"container {names.CONTAINER} starts no agent of this operator; set spec.agent if its script does"
    return "these pods have no coordinator" if options.coordinator is None else None


def _starts_no_agent(template: dict[str, Any]) -> bool:
    """Whether the command starts torchrun or Python, and nothing of ours. Any other command may start an agent."""
    words = _words(template)
    return (
        bool((main_container(template) or {}).get("command"))
        and not names_agent(template)
        and any(plain in words for plain in _PLAIN)
    )


def names_agent(template: dict[str, Any]) -> bool:
    """Whether the command of container `pytorch` names the agent, which is then in its image, or injected."""
    return names.IN_AGENT_COMMANDS in _words(template)


def _words(template: dict[str, Any]) -> str:
    """Return the command and the arguments of container `pytorch`."""
    container = main_container(template) or {}
    return " ".join(str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ())))


def _chosen(policy: ElasticPolicy, *, injects: bool) -> str | None:
    if policy.rdzv_backend is not None and not (injects and policy.rdzv_backend == DEFAULT_BACKEND):
        return "rdzvBackend"
    if policy.rdzv_host is not None:
        return "rdzvHost"
    return "standalone" if policy.standalone else None


def _endpoint(job: PyTorchJob, replica: Replica, at: CoordinatorAccess) -> list[Variable]:
    meta = job.metadata
    pod = names.pod_name(meta.name, replica.type, replica.index)
    host, _, port = at.address.rpartition(":")
    return CoordinatorEndpoint(
        host=host,
        port=int(port),
        token_file=credential.FILE,
        job=meta.uid,
        pod=pod,
        index=replicas.position(job, replica),
        ca=at.ca,
    ).to_env()


def _grace(template: dict[str, Any]) -> Iterator[Variable]:
    """Yield the agent's time to stop when its pod is deleted, unless it is Kubernetes' default, which it knows."""
    seconds = (template.get("spec") or {}).get("terminationGracePeriodSeconds")
    if isinstance(seconds, int) and seconds != DEFAULT_TERMINATION:
        yield {"name": GRACE, "value": str(max(seconds - _SPARE_SECONDS, seconds // 2))}


def _settings(policy: AgentPolicy) -> Iterator[Variable]:
    """Yield what the user set: the agent knows its own defaults."""
    if policy.start_mode is not None:
        yield {"name": START_MODE, "value": policy.start_mode.value.lower()}
    if policy.preload:
        yield {"name": PRELOAD, "value": ",".join(policy.preload)}
    if policy.survive is SurviveMode.AUTO:
        yield {"name": SURVIVE, "value": policy.survive.value.lower()}
    if policy.fence_seconds is not None:
        yield {"name": FENCE, "value": str(policy.fence_seconds)}
    if policy.checkpoint is not None:
        yield {"name": CHECKPOINT, "value": checkpoint_memory.rules(policy.checkpoint).to_json()}
        yield {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    if policy.observe_progress is False:
        yield {"name": OBSERVE_PROGRESS, "value": "0"}
    if policy.find_stragglers is False:
        yield {"name": FIND_STRAGGLERS, "value": "0"}
    if policy.hang is not None:
        # The kubelet would expand $(...) in a pattern as a variable of the pod.
        text = json.dumps(policy.hang.to_api(), separators=(",", ":")).replace("$", "$$")
        yield {"name": HANG, "value": text}
    if policy.preflight is not None:
        yield {"name": PREFLIGHT, "value": policy.preflight.value.lower()}
