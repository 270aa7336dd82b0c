"""Many jobs in a queue of the real Kueue, of which few are admitted: what they cost the operator, and Kueue.

Ours: the operator makes the Workloads. The yardstick: Kueue makes them by its own integration, and suspends the jobs.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.audit import OPERATOR, Audit
from benchmarks.cluster import Cluster, cluster, job
from benchmarks.processes import cpu_seconds
from benchmarks.table import Row, load
from pytorchjob_operator.control.apply import JOBS
from pytorchjob_operator.kube.client import Scope
from pytorchjob_operator.names import LABEL_KUEUE_QUEUE
from tests.apiserver.kueue_process import BUILT, PYTORCHJOB, QUEUE, KueueProcess, flavor, queue

_KUEUE = "kueue/"
_PODS = 4
_CPU_OF_JOB = 400  # thousandths: `cluster.job` asks for 100 for each pod
_SUBMITTERS = 4
_SETTLE_SECONDS = 30.0

Cost = Mapping[str, float]
"""Per job: CPU milliseconds and requests of the operator and of Kueue."""


async def measure(count: int, admitted: int) -> list[Row]:
    """Measure both ways in one run."""
    if not BUILT:
        raise SystemExit("Kueue is not built: run `make binaries-kueue`")
    before = load()
    ours, theirs = [await _costs(count, admitted, external=external) for external in (True, False)]
    command = f"python -m benchmarks queues --jobs {count} --admitted {admitted}"
    samples = {
        f"{who} {name}": [value] for who, cost in (("ours", ours), ("theirs", theirs)) for name, value in cost.items()
    }
    return [
        Row(
            f"{count} jobs in a queue, {admitted} admitted: {name} for each job",
            _sum(ours, unit),
            _sum(theirs, unit),
            f"{_both(ours, unit) / _both(theirs, unit):.2f}",
            "<= 1",
            command,
            f"{before} to {load()}",
            {key: value for key, value in samples.items() if unit in key},
        )
        for name, unit in (("CPU", "ms"), ("requests", "requests"))
    ]


def _both(cost: Cost, unit: str) -> float:
    return cost[f"operator {unit}"] + cost[f"Kueue {unit}"]


def _sum(cost: Cost, unit: str) -> str:
    operator, kueue = cost[f"operator {unit}"], cost[f"Kueue {unit}"]
    return f"{_both(cost, unit):.1f} {unit}: operator {operator:.1f}, Kueue {kueue:.1f}"


async def _costs(count: int, admitted: int, *, external: bool) -> Cost:
    async with cluster() as where:
        folder = where.directory / "kueue"
        folder.mkdir()
        kueue = await asyncio.to_thread(_kueue, where, folder, external=external)
        try:
            return await _with_operator(where, kueue, count, admitted, external=external)
        finally:
            await asyncio.to_thread(kueue.stop)


def _kueue(where: Cluster, folder: Path, *, external: bool) -> KueueProcess:
    frameworks = ["batch/job"] if external else ["batch/job", PYTORCHJOB]
    return KueueProcess(where.plane, folder, frameworks, external=external).wait_ready()


async def _with_operator(where: Cluster, kueue: KueueProcess, count: int, admitted: int, *, external: bool) -> Cost:
    namespace = where.namespace()
    made = where.plane.apply(flavor(), *queue(namespace, QUEUE, f"{admitted * _CPU_OF_JOB}m"))
    assert made.returncode == 0, made.stderr
    env = {"PYTORCHJOB_KUEUE": "true"} if external else {}
    async with where.operator(**env) as operator:
        audit = Audit(where.plane.audit_log)
        before = cpu_seconds(operator.pid), cpu_seconds(kueue.pid)
        left = iter(range(count))
        await asyncio.gather(*(_submit(where, namespace, left) for _ in range(_SUBMITTERS)))
        await where.until(lambda: _run(where, namespace, admitted))
        await asyncio.sleep(_SETTLE_SECONDS)
        used = cpu_seconds(operator.pid) - before[0], cpu_seconds(kueue.pid) - before[1]
        asked = [audit.counts(agent).total() for agent in (OPERATOR, _KUEUE)]
    return {
        "operator ms": 1000 * used[0] / count,
        "Kueue ms": 1000 * used[1] / count,
        "operator requests": asked[0] / count,
        "Kueue requests": asked[1] / count,
    }


async def _submit(where: Cluster, namespace: str, left: Iterator[int]) -> None:
    for index in left:
        body = job(namespace, f"job-{index}", _PODS)
        body["metadata"]["labels"] = {LABEL_KUEUE_QUEUE: QUEUE}
        await where.submit(body)


async def _run(where: Cluster, namespace: str, admitted: int) -> bool:
    """Whether as many jobs run as there is quota for."""
    found = [each async for page in where.client.list(Scope(JOBS, namespace)) for each in page.items]
    running = [
        each
        for each in found
        if any(
            (condition["type"], condition["status"]) == ("Running", "True")
            for condition in (each.get("status") or {}).get("conditions") or ()
        )
    ]
    return len(running) == admitted
