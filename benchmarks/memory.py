"""Memory of the operator's process: with nothing to do, and with thousands of pods in its cache."""

import asyncio

from benchmarks.cluster import Cluster, cluster, job
from benchmarks.processes import cpu_seconds, memory_mb
from benchmarks.table import Row, load

_JOBS = 5
_SETTLE_SECONDS = 10.0


async def measure(pods: int) -> list[Row]:
    """An idle operator; the same after creating the pods, which stay Pending; a fresh one that finds them there."""
    async with cluster(nodes=0) as where:
        async with where.operator() as operator:
            pid = operator.process.pid
            await asyncio.sleep(_SETTLE_SECONDS)
            idle, cpu = memory_mb(pid), cpu_seconds(pid)
            await _fill(where, pods)
            await where.until_cached(operator, pods)
            await asyncio.sleep(_SETTLE_SECONDS)
            full, peak, cpu = memory_mb(pid), memory_mb(pid, "VmHWM"), cpu_seconds(pid) - cpu
        async with where.operator() as operator:
            await where.until_cached(operator, pods)
            await asyncio.sleep(_SETTLE_SECONDS)
            again, again_peak = memory_mb(operator.process.pid), memory_mb(operator.process.pid, "VmHWM")
    command = f"python -m benchmarks memory --pods {pods}"
    name, made = "operator's memory, ", f"{_JOBS} jobs x {pods // _JOBS} pods"
    return [
        Row(f"{name}idle", f"{idle:.0f} MB", "", "", "< 120 MB", command, load(), {"ours": [idle]}),
        Row(f"{name}{made} created", f"{full:.0f} MB (peak {peak:.0f})", "", "", "< 250 MB", command, load(),
            {"ours": [full], "peak": [peak]}),
        Row(f"{name}{made} found at start", f"{again:.0f} MB (peak {again_peak:.0f})", "", "", "< 250 MB",
            command, load(), {"ours": [again], "peak": [again_peak]}),
        Row(f"operator's CPU to create {made}", f"{cpu:.1f} s", "", "", "", command, load(), {"ours": [cpu]}),
    ]  # fmt: skip


async def _fill(where: Cluster, pods: int) -> None:
    namespace = where.namespace()
    for index in range(_JOBS):
        await where.submit(job(namespace, f"job-{index}", pods // _JOBS))
