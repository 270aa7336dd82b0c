"""How soon after a fault `pytorchjob status` names its cause.

The API server and the operator are real. There is no kubelet and no scheduler: this program writes what they would
write about pods, also the seeds of `tests/people/faults.py`. From then on the command runs again and again, each time
as a process of its own, until its screen names the cause.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cluster import Cluster, Object, cluster, job
from benchmarks.table import Row, load, spread
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from pytorchjob_operator.kube.resource import PODS
from tests.apiserver.operator_process import Kubelet
from tests.people import faults
from tests.people.fake_cluster import NOW

_ROOT = Path(__file__).parents[1]
_JOB = "train"
_PODS = 3
_LIMIT_SECONDS = 60.0
_CONTAINER = {"name": "pytorch", "image": "train:1", "imageID": "x", "ready": False, "restartCount": 0}
_TIMES = {"startedAt": "2026-01-02T03:00:00Z", "finishedAt": "2026-01-02T03:00:05Z"}


@dataclass(frozen=True)
class Fault:
    """A fault: what the job has, or what is written about its pods."""

    cause: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Of the job's pods."""
    job_spec: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "OnFailure"
    pods: Mapping[str, Any] = field(default_factory=dict)
    """The status of pods by name; empty: the fault is in the job."""


def _last_pod(phase: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of the last worker's pod by its name."""
    return {f"{_JOB}-worker-1": {"phase": phase, "containerStatuses": [{**_CONTAINER, **container}]}}


def _ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": code, "reason": reason, "message": message, **_TIMES}}}


def _waiting(reason: str, message: str) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


_SETUP = TerminationMessage(ExitReason.BAD_SETUP, ExitCode.SETUP, message="torch cannot be imported in this image")
_MODULE = "Traceback (most recent call last):\n  File 'train.py'\nModuleNotFoundError: No module named 'wandb'\n"
_NOT_FOUND = 'failed to resolve reference "docker.io/library/train:1": docker.io/library/train:1: not found'
FAULTS = (
    Fault("PriorityClassMissing", spec={"priorityClassName": "high"}),
    Fault("RuntimeClassMissing", spec={"runtimeClassName": "nvidia"}),
    Fault("SuspendedByUser", job_spec={"runPolicy": {"suspend": True}}),
    Fault("GangSchedulerMissing", job_spec={"runPolicy": {"schedulingPolicy": {"gangScheduler": "some-scheduler"}}}),
    Fault("ModuleMissing", policy="Never", pods=_last_pod("Failed", _ended(1, _MODULE))),
    Fault(
        "OOMKilled",
        job_spec={"runPolicy": {"backoffLimit": 0}},
        policy="ExitCode",
        pods=_last_pod("Failed", _ended(137, reason="OOMKilled")),
    ),
    Fault(
        "TorchMissing",
        pods=_last_pod(
            "Running",
            {
                **_waiting("CrashLoopBackOff", "back-off restarting failed container"),
                "restartCount": 2,
                "lastState": _ended(int(ExitCode.SETUP), _SETUP.to_json())["state"],
            },
        ),
    ),
    Fault("ImageNotFound", pods=_last_pod("Pending", _waiting("ErrImagePull", _NOT_FOUND))),
)


def _seeded() -> Iterator[Fault]:
    """Yield a fault for each further cause whose seed has nothing but pods, beside the job at most."""
    causes = {fault.cause for fault in FAULTS}
    for seed in (*faults.IMAGES, *faults.SCHEDULING, *faults.PROGRAMS, *faults.CONTAINERS):
        parts = [part for part in seed.parts if isinstance(part, dict)]
        pods = {part["metadata"]["name"]: part["status"] for part in parts if part["kind"] == "Pod"}
        if seed.cause in causes or len(parts) < len(seed.parts) or len(pods) + 1 < len(parts):
            continue
        causes.add(seed.cause)
        ends = any(status.get("phase") == "Failed" for status in pods.values())
        yield Fault(seed.cause, policy="Never" if ends else "OnFailure", pods=_dated(pods))


def _dated(value: Any) -> Any:
    """Move the times of a seed, which are close to `NOW` of the tests, to the present."""
    match value:
        case dict():
            return {name: _dated(inner) for name, inner in value.items()}
        case list():
            return [_dated(inner) for inner in value]
        case str() if len(value) == len("2026-01-02T03:04:05Z") and value.startswith("2026-01-0"):
            return (datetime.fromisoformat(value) - NOW + datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


async def measure(repeat: int) -> list[Row]:
    """The time from each fault to the first screen that names its cause."""
    before, seconds, every_fault = load(), dict[str, list[float]](), (*FAULTS, *_seeded())
    async with cluster(nodes=0) as stand, stand.operator():
        for _ in range(repeat):
            for fault in every_fault:
                seconds.setdefault(fault.cause, []).append(await _named_after(stand, fault))
    every = [value for values in seconds.values() for value in values]
    slowest = max(seconds, key=lambda cause: max(seconds[cause]))
    return [
        Row(
            f"`pytorchjob status` names the cause of a fault ({len(every_fault)} causes)",
            f"{spread(every)}; slowest: {slowest}",
            "",
            "",
            "< 10 s",
            f"python -m benchmarks status --repeat {repeat}",
            f"{before} to {load()}",
            seconds,
        )
    ]


async def _named_after(stand: Cluster, fault: Fault) -> float:
    """Seconds from the fault to a screen with its cause; raises TimeoutError if there is none."""
    namespace = stand.namespace()
    kubelet = Kubelet(stand.client, namespace)
    body = _job(namespace, fault)
    if fault.pods:
        await stand.submit(body)

        async def all_exist() -> bool:
            return len(await kubelet.pods()) == _PODS

        await stand.until(all_exist)
        started = time.monotonic()
        for name, status in fault.pods.items():
            await stand.client.patch_status(PODS, namespace, name, {"status": status})
    else:
        started = time.monotonic()
        await stand.submit(body)
    async with asyncio.timeout(_LIMIT_SECONDS):
        while fault.cause not in await _causes(stand, namespace):
            pass
    return time.monotonic() - started


def _job(namespace: str, fault: Fault) -> Object:
    body = job(namespace, _JOB, _PODS, **fault.job_spec)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = fault.policy
        role["template"] = {**role["template"], "spec": {**role["template"]["spec"], **fault.spec}}
    return body


async def _causes(stand: Cluster, namespace: str) -> list[str]:
    """The causes on the screen of the command."""
    where = [f"--kubeconfig={stand.plane.kubeconfig}", f"--namespace={namespace}", "-o", "json"]
    command = [sys.executable, "-m", "pytorchjob", "status", _JOB, *where]
    env = {**os.environ, "PYTHONPATH": str(_ROOT / "operator")}
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=tempfile.gettempdir(), env=env, capture_output=True, check=True
    )
    return [finding["cause"] for finding in json.loads(done.stdout)["findings"]]
