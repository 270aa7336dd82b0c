"""Translates a pod, as a cluster would get it, into a command for this machine.

It follows Kubernetes' rules for command, args, env, `$(VAR)` and fieldRef. `notes` lists what it ignores.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytorchjob.local.addresses import LOOPBACK, Addresses
from pytorchjob.local.image_paths import Maps, mapped
from pytorchjob.local.supervisor import Command
from pytorchjob_agent.contract import environment
from pytorchjob_agent.contract.cache_rules import CACHES
from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT
from pytorchjob_agent.contract.noted_end import ENDS
from pytorchjob_operator import names
from pytorchjob_operator.model import main_container
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import credential, inject

HOSTNAME = "HOSTNAME"
PATH = "PATH"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_CRASHES = "PYTHONFAULTHANDLER"
"""Python prints where a program was that crashes in native code."""
_LOCAL_ADDR = "PET_LOCAL_ADDR"
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_NOT_HERE = (CHECKPOINT, CACHES, environment.GPUS)
"""Variables that mean nothing here: replicas share this machine's directories, and it may have fewer GPUs, or none."""
_LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"

_OF_A_JOB = re.compile(
    r"(PET_|TORCHELASTIC_|PYTORCHJOB_(COORDINATOR|COORDINATOR_CA|TOKEN|TOKEN_FILE|JOB|POD|POD_UID|INDEX)$|(GROUP_|ROLE_|LOCAL_)?(RANK|WORLD_SIZE)$|GROUP_WORLD_SIZE$|LOCAL_WORLD_SIZE$|MASTER_(ADDR|PORT)$)"
)
"""Variables of a rank or a job in the caller's environment: a replica must not inherit them."""
_REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_LABEL_OR_ANNOTATION = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_AGENT = "pytorchjob-agent"
_AGENT_ROOT = Path(environment.__file__).parents[1]
_HOOK = str(_AGENT_ROOT / "workers" / "startup")


@dataclass(frozen=True)
class LocalMachine:
    """The properties of this machine and run that a command depends on."""

    addresses: Addresses
    env: Mapping[str, str]
    cwd: str
    scratch: str
    """A temporary directory that is removed after the run."""
    python: str = sys.executable
    maps: Maps = ()
    """Folders of the image, and where this machine has them."""


def to_command(pod: Mapping[str, Any], machine: LocalMachine, gpus: str | None) -> Command:
    """Translate one pod; `gpus` is its CUDA_VISIBLE_DEVICES, None keeps the caller's value."""
    container = main_container(dict(pod)) or {}
    given = _given_env(pod, container, machine)
    env = {**_base_env(machine), **_local_env(pod, machine, gpus), **given}
    if _notes_ends(container):
        env[inject.PYTHONPATH] = os.pathsep.join(filter(None, (_HOOK, env.get(inject.PYTHONPATH))))
        env[ENDS] = ends_directory(machine.scratch, pod["metadata"]["name"])
    env[PATH] = os.pathsep.join(part for part in (str(Path(machine.python).parent), env.get(PATH, os.defpath)) if part)
    texts = [*(container.get("command") or ()), *(container.get("args") or ())]
    argv = [machine.addresses.translate(_here(expand(str(text), given), machine), whole_words=True) for text in texts]
    return _with_agent(Command(tuple(argv), env, _directory(container, machine)), machine)


def _notes_ends(container: Mapping[str, Any]) -> bool:
    """Return whether the workers note how they end for this run, and not for the agent."""
    return _AGENT not in (container.get("command") or ())[:1]


def replica(pod: Mapping[str, Any]) -> tuple[ReplicaType, int]:
    """The replica type and index of a pod of the plan."""
    labels = pod["metadata"]["labels"]
    replica_type = next(known for known in ReplicaType if known.label == labels[names.LABEL_REPLICA_TYPE])
    return replica_type, int(labels[names.LABEL_REPLICA_INDEX])


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expand `$(VAR)` as Kubernetes does: an unknown variable stays as written, `$$` becomes a dollar sign."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def field_value(pod: Mapping[str, Any], path: str, address: str) -> str | None:
    """The downward API's value for `fieldRef.fieldPath`; None if this machine has no such value."""
    meta = pod["metadata"]
    keyed = _LABEL_OR_ANNOTATION.fullmatch(path)
    if keyed:
        return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))
    plain = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta.get("uid", ""),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": LOOPBACK,
        "spec.nodeName": os.uname().nodename,
        "spec.serviceAccountName": (pod.get("spec") or {}).get("serviceAccountName", "default"),
    }
    return plain.get(path)


def _given_env(pod: Mapping[str, Any], container: Mapping[str, Any], machine: LocalMachine) -> dict[str, str]:
    """The container's own env, in order: a later variable of the same name wins, and may refer to earlier ones."""
    env: dict[str, str] = {}
    directories = {
        inject.DIRECTORY: agent_directory(machine.scratch),
        credential.DIRECTORY: credential_directory(machine.scratch, pod["metadata"]["name"]),
    }
    for variable in container.get("env") or ():
        name, source = variable["name"], variable.get("valueFrom") or {}
        if name in _NOT_HERE:
            continue
        if not source:
            text = _here(expand(str(variable.get("value") or ""), env), machine)
            for directory, local in directories.items():
                text = text.replace(directory, local)
            env[name] = machine.addresses.translate(text, whole_words=_is_address(name))
        elif "fieldRef" in source:
            found = field_value(pod, source["fieldRef"].get("fieldPath", ""), machine.addresses.of(*replica(pod)))
            env.update({} if found is None else {name: found})
    return env


def _here(text: str, machine: LocalMachine) -> str:
    """Return a text with the image's folders as this machine's; absolute, because a pod may have a workingDir."""
    return mapped(text, [(image, str(Path(machine.cwd, here))) for image, here in machine.maps])


def _is_address(name: str) -> bool:
    return name.endswith(("_ADDR", "_HOST", "_ENDPOINT"))


def _base_env(machine: LocalMachine) -> dict[str, str]:
    return {name: value for name, value in machine.env.items() if not _OF_A_JOB.match(name)}


def _local_env(pod: Mapping[str, Any], machine: LocalMachine, gpus: str | None) -> dict[str, str]:
    """What a pod would have of its own: host name, network interface, devices, file for the termination message."""
    name = pod["metadata"]["name"]
    env = dict.fromkeys((variable for variable in _INTERFACES if variable not in machine.env), _LOOPBACK_INTERFACE)
    env |= {
        HOSTNAME: name,
        _CRASHES: "1",
        _LOCAL_ADDR: machine.addresses.of(*replica(pod)),
        environment.TERMINATION_LOG: termination_log(machine.scratch, name),
    }
    return env if gpus is None else env | {VISIBLE_GPUS: gpus}


def agent_directory(scratch: str) -> str:
    """The directory for an injected agent (spec.agent.inject); in a cluster an init container fills it."""
    return str(Path(scratch) / "agent")


def credential_directory(scratch: str, pod: str) -> str:
    """The directory of a replica's credential; in a cluster the kubelet fills it."""
    return str(Path(scratch) / f"{pod}.credential")


def ends_directory(scratch: str, pod: str) -> str:
    """The directory in which the workers of a replica note how they end."""
    return str(Path(scratch) / f"{pod}.ends")


def termination_log(scratch: str, pod: str) -> str:
    """The file for a replica's termination message."""
    return str(Path(scratch) / f"{pod}.termination-log")


def _directory(container: Mapping[str, Any], machine: LocalMachine) -> str:
    """The container's working directory if it exists on this machine, otherwise the caller's."""
    wanted = _here(str(container.get("workingDir") or ""), machine)
    return str(wanted) if wanted and Path(wanted).is_dir() else machine.cwd


def _with_agent(command: Command, machine: LocalMachine) -> Command:
    """Run `pytorchjob-agent` from its source if the package is not installed."""
    if command.argv[0] != _AGENT or (Path(machine.python).parent / _AGENT).exists():
        return command
    return from_source(replace(command, argv=command.argv[1:]), machine)


def from_source(command: Command, machine: LocalMachine) -> Command:
    """Return the command that runs the agent next to this package; `command.argv` holds the agent's arguments."""
    source = os.pathsep.join(part for part in (str(_AGENT_ROOT.parent), command.env.get(inject.PYTHONPATH)) if part)
    argv = (machine.python, "-m", _AGENT_ROOT.name, *command.argv)
    return Command(argv, {**command.env, inject.PYTHONPATH: source}, command.cwd)
