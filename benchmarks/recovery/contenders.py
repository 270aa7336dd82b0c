"""Who competes: the same job, image, seed and checkpoints; what differs is who brings the processes together again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

WORKERS, LEAST = 3, 2
CHECKPOINT_STEPS = 10
STEP_SECONDS = 0.05
IMAGE = "pytorchjob/agent:dev"
SCRIPT = "/bench/train.py"
GRACE_SECONDS = 5

_TORCHRUN = ("torchrun",)
_MANY_RESTARTS = 10_000
# torchrun has no option for what its fork server imports.
_PRELOADED = """
import multiprocessing
multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "torch.nn.parallel.distributed", "torch._dynamo"])
from torch.distributed.run import main
main()
"""
_NO_SHARING = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# torch's own values, set explicitly: the operator sets better values where a job has none.
_TORCHS_ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}
_TORCHS_CONF = {"keep_alive_interval": "5", "keep_alive_max_attempt": "3", "last_call_timeout": "30"}
_MEMORY: Object = {"startMode": "Warm", "checkpoint": {"directory": "/checkpoints", "memory": "64Mi"}}
_TUNED_CONF = {"keep_alive_interval": "1", "keep_alive_max_attempt": "3", "last_call_timeout": "5"}


@dataclass(frozen=True)
class Contender:
    """A command and what it is told."""

    name: str
    what: str
    command: tuple[str, ...]
    backend: str = ""
    """Empty: what the operator gives a job that asks for nothing."""
    env: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)
    grace: int = GRACE_SECONDS
    """terminationGracePeriodSeconds."""

    def first_is_host(self) -> bool:
        """Whether worker 0 holds the store, whoever has rank 0."""
        return bool(self.backend)


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("ours", "pytorchjob-agent run", ("pytorchjob-agent", "run", "--", SCRIPT)),
        Contender(
            "ours-warm",
            "pytorchjob-agent run, workers forked from a warm process",
            ("pytorchjob-agent", "run", "--", SCRIPT),
            agent={"startMode": "Warm"},
        ),
        Contender(
            "ours-memory",
            "the same, checkpoints in the pods' memory with one copy instead of storage",
            ("pytorchjob-agent", "run", "--", SCRIPT),
            env={"TRAIN_CHECKPOINTS": "/checkpoints"},
            agent=_MEMORY,
        ),
        Contender(
            "ours-survive",
            "the same, the others go on without a lost pod",
            ("pytorchjob-agent", "run", "--", SCRIPT),
            env={"TRAIN_CHECKPOINTS": "/checkpoints"},
            agent={**_MEMORY, "survive": "Auto"},
        ),
        Contender(
            "ours-steps",
            "the same, and it comes back between two steps",
            ("pytorchjob-agent", "run", "--", SCRIPT),
            env={"TRAIN_CHECKPOINTS": "/checkpoints", "TRAIN_SHARES": "yes"},
            agent={**_MEMORY, "survive": "Auto"},
        ),
        Contender(
            "default", "torchrun c10d, torch's defaults", (*_TORCHRUN, SCRIPT), "c10d", _TORCHS_ENV, _TORCHS_CONF
        ),
        Contender(
            "tuned",
            "torchrun c10d, tuned",
            (*_TORCHRUN, "--monitor-interval=0.1", SCRIPT),
            "c10d",
            _NO_SHARING,
            _TUNED_CONF,
        ),
        Contender(
            "tuned-forkserver",
            "torchrun c10d, tuned, with a fork server that has imported torch",
            ("python", "-c", _PRELOADED, "--monitor-interval=0.1", "--start-method=forkserver", "--run-path", SCRIPT),
            "c10d",
            _NO_SHARING,
            _TUNED_CONF,
        ),
        Contender("torchrun", "torchrun, with what the operator gives it unasked", (*_TORCHRUN, SCRIPT)),
        Contender(
            "injected",
            "torchrun, our rendezvous put into its pods",
            (*_TORCHRUN, SCRIPT),
            agent={"inject": True},
        ),
    )
}


def job(contender: Contender, name: str, store: str, ports: tuple[int, int], count: int = WORKERS) -> str:
    """The PyTorchJob: workers on nodes of their own, at least two of them, with checkpoints and lines in the store."""
    checkpoints, lines = ports
    env = {
        "OMP_NUM_THREADS": "1",
        "TRAIN_STEPS": "100000000",
        "TRAIN_STEP_SECONDS": str(STEP_SECONDS),
        "TRAIN_CHECKPOINT_STEPS": str(CHECKPOINT_STEPS),
        "TRAIN_CHECKPOINTS": f"http://{store}:{checkpoints}/{name}",
        "TRAIN_SINK": f"{store}:{lines}",
        **contender.env,
    }
    container = {
        "name": "pytorch",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(contender.command),
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "bench", "mountPath": "/bench", "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        **RESTRICTED,
        "containers": [container],
        "volumes": [{"name": "bench", "configMap": {"name": "bench"}}],
        "terminationGracePeriodSeconds": contender.grace,
        "affinity": {"podAntiAffinity": _apart(name, must=count <= WORKERS)},
    }
    workers = {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    spec = {
        "nprocPerNode": "1",
        "elasticPolicy": _elastic(contender, count),
        "pytorchReplicaSpecs": {"Worker": workers},
    }
    if contender.agent:
        spec["agent"] = dict(contender.agent)
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}
    return json.dumps(body)


RESTRICTED: Object = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
}


def _elastic(contender: Contender, count: int) -> Object:
    elastic: Object = {"minReplicas": LEAST, "maxReplicas": count, "maxRestarts": _MANY_RESTARTS}
    if contender.backend:
        elastic["rdzvBackend"] = contender.backend
    if contender.conf:
        elastic["rdzvConf"] = [{"key": key, "value": value} for key, value in contender.conf.items()]
    return elastic


def _apart(name: str, *, must: bool) -> Object:
    """One worker a node: always, or as far as there are nodes."""
    selector = {"matchLabels": {"training.kubeflow.org/job-name": name}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    if must:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
