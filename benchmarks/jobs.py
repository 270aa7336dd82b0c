"""Many small jobs: from the first `apply` until the status of each says that all its pods run."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.audit import Audit
from benchmarks.cluster import Cluster, cluster, job
from benchmarks.table import Row, load, spread
from pytorchjob_operator.control.apply import JOBS
from pytorchjob_operator.kube.client import Scope

_PODS = 4
_SUBMITTERS = 4
_SETTLE_SECONDS = 3.0


@dataclass(frozen=True)
class Crowd:
    """Seconds from the first request of submission to the end of it, to all pods Running, to all statuses."""

    submitted: float
    running: float
    told: float


async def measure(count: int, repeat: int) -> list[Row]:
    """Submit them, several at a time, and wait."""
    async with cluster() as where:
        before = load()
        crowds = [await _crowd(where, count) for _ in range(repeat)]
    samples = {name: [getattr(crowd, name) for crowd in crowds] for name in ("told", "submitted", "running")}
    submitted, running = spread(samples["submitted"]), spread(samples["running"])
    return [
        Row(
            f"{count} jobs x {_PODS} pods: all Running in status",
            spread(samples["told"]),
            f"{submitted} to submit, {running} until all run",
            "",
            "<= running + 1 s",
            f"python -m benchmarks jobs --jobs {count} --repeat {repeat}",
            f"{before} to {load()}",
            samples,
        )
    ]


async def _crowd(where: Cluster, count: int) -> Crowd:
    namespace = where.namespace()
    async with where.operator():
        await asyncio.sleep(_SETTLE_SECONDS)
        audit, left = Audit(where.plane.audit_log), iter(range(count))
        await asyncio.gather(*(_submit(where, namespace, left) for _ in range(_SUBMITTERS)))
        await where.until(lambda: _all_run(where, namespace, count))
    asked = audit.requests(namespace=namespace)
    created = [request for request in asked if request.is_a("create", "pytorchjobs")]
    start = min(request.received for request in created)
    last = {
        key: max(request.answered for request in asked if request.is_a("patch", key)) - start
        for key in ("pods/status", "pytorchjobs/status")
    }
    await asyncio.to_thread(where.empty, namespace)
    await asyncio.sleep(_SETTLE_SECONDS)
    return Crowd(max(request.answered for request in created) - start, last["pods/status"], last["pytorchjobs/status"])


async def _submit(where: Cluster, namespace: str, left: Iterator[int]) -> None:
    for index in left:
        await where.submit(job(namespace, f"job-{index}", _PODS))


async def _all_run(where: Cluster, namespace: str, count: int) -> bool:
    found = [job async for page in where.client.list(Scope(JOBS, namespace)) for job in page.items]
    shown = [(job.get("status") or {}).get("replicaStatuses") or {} for job in found]
    run = sum(1 for roles in shown if sum(role.get("active") or 0 for role in roles.values()) == _PODS)
    return run == count
