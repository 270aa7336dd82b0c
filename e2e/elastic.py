"""A small job whose agents meet at the coordinator, and what its own log tells of its training."""

import json
import re
from collections.abc import Mapping
from typing import Any

from e2e.kubectl import Kubectl, until

# Each rank keeps the last step in its own pod; after a restart all go on from the furthest that is left.
# A rank prints a step before it keeps it: a kill between the two leaves no step out of every log.
TRAIN = """
import os, pathlib, time
import torch, torch.distributed as dist
from pytorchjob_agent import progress

steps, seconds, file = int(os.environ["STEPS"]), float(os.environ["STEP_SECONDS"]), pathlib.Path("/tmp/step")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
first = torch.tensor(int(file.read_text()) if file.exists() else 0)
dist.all_reduce(first, dist.ReduceOp.MAX)
count = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"start rank={rank} world={world} from={int(first)} pid={os.getpid()} restarts={count}", flush=True)
for step in range(int(first) + 1, steps + 1):
    members = torch.ones(1)
    dist.all_reduce(members)
    assert int(members) == world
    print(f"step={step} world={world}", flush=True)
    part = file.with_suffix(".part")
    part.write_text(str(step))
    part.replace(file)
    progress(step, steps, members=float(world))
    time.sleep(seconds)
dist.destroy_process_group()
print("done", flush=True)
"""
_START = re.compile(r"start rank=(\d+) world=(\d+) from=(\d+) pid=(\d+) restarts=(\d+)")
_STEP = re.compile(r"step=(\d+) world=(\d+)")


def elastic_job(
    name: str, workers: int, *, steps: int = 200, seconds: float = 0.1, train: str = TRAIN, **spec: Any
) -> dict[str, Any]:
    """A job of so many workers, with the agent as the first process of each; keywords go into its spec."""
    env = {"STEPS": str(steps), "STEP_SECONDS": str(seconds), "TRAIN": train, "OMP_NUM_THREADS": "1"}
    container = {
        "name": "pytorch",
        "image": "pytorchjob/examples:dev",
        "command": ["sh", "-c", 'printf %s "$TRAIN" >/tmp/train.py; exec pytorchjob-agent run -- /tmp/train.py'],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    template = {"spec": {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 5}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"nprocPerNode": "1", "pytorchReplicaSpecs": _workers(workers, template), **spec},
    }


def _workers(count: int, template: dict[str, Any]) -> dict[str, Any]:
    return {"Worker": {"replicas": count, "restartPolicy": "OnFailure", "template": template}}


def with_env(job: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The job with more variables for its script."""
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    kept = [entry for entry in container.get("env", ()) if entry["name"] not in given]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in given.items())]
    return job


def submit(kubectl: Kubectl, job: dict[str, Any]) -> None:
    """Give it to the cluster."""
    kubectl("apply", "-f", "-", stdin=json.dumps(job))


def log(kubectl: Kubectl, job: str, worker: int) -> str:
    """What a worker has printed so far; empty before it runs."""
    return kubectl("logs", f"{job}-worker-{worker}", check=False)


def starts(text: str) -> list[dict[str, int]]:
    """The beginnings of training in a worker's log."""
    keys = ("rank", "world", "from", "pid", "restarts")
    return [dict(zip(keys, map(int, found), strict=True)) for found in _START.findall(text)]


def steps(text: str) -> list[int]:
    """The steps in a worker's log, in their order."""
    return [int(step) for step, _ in _STEP.findall(text)]


def until_step(kubectl: Kubectl, job: str, worker: int, least: int, seconds: float = 180) -> None:
    """Wait until a worker has come so far."""
    until(lambda: max(steps(log(kubectl, job, worker)), default=0) >= least, seconds, lambda: f"\n{kubectl.story(job)}")


def elastic(kubectl: Kubectl, job: str) -> dict[str, Any]:
    """status.elastic of a job; empty while it has none."""
    found: dict[str, Any] = kubectl.job(job).get("status", {}).get("elastic", {})
    return found


def events(kubectl: Kubectl, job: str) -> set[str]:
    """The reasons of the job's events."""
    found = kubectl.get("events", f"--field-selector=involvedObject.name={job}")["items"]
    return {event["reason"] for event in found}
