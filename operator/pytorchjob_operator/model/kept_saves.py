"""What is left of a job's saves without its pods: `validate` warns of it, and `suspend` and `restart` say it. Pure.

It reads the spec as the API server has it, so that it serves a file and a job of a cluster.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from pytorchjob_operator.model.defaults import main_container

_AGENT = ("pytorchjob-agent", "pytorchjob_agent")
"""What a command contains that runs the agent itself; torchrun with the agent's rendezvous keeps no saves."""
_PASSING = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "ephemeral", "image")
"""Kinds of volumes that end with their pod, or hold no saves."""
_MEMORY = "spec.agent.checkpoint"


class Kept(StrEnum):
    """What of a job's saves outlives all of its pods."""

    DURABLE = "Durable"
    """The newest save that the agents have copied to the durable directory."""
    VOLUME = "Volume"
    """What the script has saved on a volume of its own; whether it does so is not known."""
    NOTHING = "Nothing"
    """Nothing that this spec shows."""


def kept(spec: Mapping[str, Any]) -> Kept:
    """Return what outlives the pods of a job with this spec."""
    policy, templates = _policy(spec), _templates(spec)
    if policy is None:
        return Kept.VOLUME if any(_lasting(template) for template in templates) else Kept.NOTHING
    durable = (policy.get("durable") or {}).get("directory")
    if durable and all(_contains(template, durable) for template in templates):
        return Kept.DURABLE
    lasts = all(policy.get("directory") in _lasting(template) for template in templates)
    return Kept.VOLUME if lasts else Kept.NOTHING


def in_memory(spec: Mapping[str, Any]) -> bool:
    """Return whether the job keeps its saves in the memory of its pods."""
    return _policy(spec) is not None


def warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a user of checkpoints in memory may lose."""
    policy = _policy(spec)
    if policy is None:
        return
    if not any(_may_start_agent(template) for template in _templates(spec)):
        yield f"{_MEMORY}: no command runs `pytorchjob-agent run`, so nothing copies or restores the saves"
    if kept(spec) is not Kept.NOTHING:
        return
    if _replicas(spec) == 1:
        yield f"{_MEMORY}: the job has one pod, so no other pod keeps a copy: a lost pod loses all saves"
    yield (
        f"{_MEMORY}: without a durable directory on a volume all saves in {policy.get('directory')} end with the pods,"
        " by suspend, restart and the end of the job: also a final model that is saved there"
    )


def _policy(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = (spec.get("agent") or {}).get("checkpoint")
    return found if isinstance(found, Mapping) else None


def _templates(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    roles = (spec.get("pytorchReplicaSpecs") or {}).values()
    return [(role or {}).get("template") or {} for role in roles]


def _replicas(spec: Mapping[str, Any]) -> int:
    roles = (spec.get("pytorchReplicaSpecs") or {}).values()
    count = sum(1 if (found := (role or {}).get("replicas")) is None else int(found) for role in roles)
    return max(count, (spec.get("elasticPolicy") or {}).get("maxReplicas") or 0)


def _may_start_agent(template: dict[str, Any]) -> bool:
    """Return whether the container may run the agent: its image decides if there is no command."""
    main = main_container(template) or {}
    words = [str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ()))]
    return not words or any(name in word for name in _AGENT for word in words)


def _lasting(template: dict[str, Any]) -> list[str]:
    """Return where the container has volumes that outlive the pod."""
    volumes = (template.get("spec") or {}).get("volumes") or ()
    lasting = {volume.get("name") for volume in volumes if not any(kind in volume for kind in _PASSING)}
    mounts = (main_container(template) or {}).get("volumeMounts") or ()
    found = [mount for mount in mounts if mount.get("name") in lasting and not mount.get("readOnly")]
    return [str(mount.get("mountPath")).rstrip("/") for mount in found]


def _contains(template: dict[str, Any], directory: str) -> bool:
    return any(f"{directory}/".startswith(f"{mount}/") for mount in _lasting(template))
