"""One job of many pods: how long the operator takes to create them, against a client that only posts them.

Both post the same bodies to the same API server over 32 connections, in turns; kwok and the scheduler bring the pods
to Running meanwhile, in both cases. Times are the audit log's.
"""

import asyncio
from dataclasses import dataclass

from benchmarks import raw
from benchmarks.audit import OPERATOR, Audit
from benchmarks.cluster import USER_AGENT, Cluster, Object, cluster, job
from benchmarks.processes import cpu_seconds
from benchmarks.table import Row, load, ratio, spread

_STATUS = "pytorchjobs/status"
_SETTLE_SECONDS = 3.0


@dataclass(frozen=True)
class Life:
    """The moments of one job, in seconds since it was applied, and the operator's CPU time until it ran."""

    first: float
    last: float
    running: float
    status: float
    cpu: float


async def measure(pods: int, repeat: int) -> list[Row]:
    """Raw and ours in turns."""
    raw_spans, lives = [], []
    async with cluster() as where:
        await _raw(where, pods)  # the API server's first pods are its slowest
        before = load()
        for _ in range(repeat):
            raw_spans.append(await _raw(where, pods))
            lives.append(await _ours(where, pods))
    spans = [life.last - life.first for life in lives]
    lag = [max(0.0, life.status - life.running) for life in lives]
    command, loads = f"python -m benchmarks create --pods {pods} --repeat {repeat}", f"{before} to {load()}"
    name = f"1 job x {pods} pods: "
    running, applied, cpu = ([getattr(life, name) for life in lives] for name in ("running", "last", "cpu"))
    return [
        Row(f"{name}first to last pod", spread(spans), f"{spread(raw_spans)} raw client", ratio(spans, raw_spans),
            "<= 1.3 x raw", command, loads, {"ours": spans, "raw client": raw_spans}),
        Row(f"{name}apply to last pod", spread(applied), "", "", "", command, loads, {"ours": applied}),
        Row(f"{name}status complete after all run", spread(lag), f"{spread(running)} until all run", "",
            "<= running + 1 s", command, loads, {"ours": lag, "until all run": running}),
        Row(f"{name}operator's CPU until Running", spread(cpu), "", "",
            "<= 1.5 s for 1000", command, loads, {"ours": cpu}),
    ]  # fmt: skip


async def _raw(where: Cluster, pods: int) -> float:
    """Seconds from the first request to the last answer."""
    namespace = where.namespace()
    # Somebody else's job: the garbage collector finds an owner, and no operator touches it.
    owner = await where.submit(job(namespace, "raw", pods, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    audit = Audit(where.plane.audit_log)
    await raw.post_pods(where, owner)
    await asyncio.sleep(_SETTLE_SECONDS)
    first, last = _span(audit, USER_AGENT, namespace)
    await _tidy(where, namespace)
    return last - first


async def _ours(where: Cluster, pods: int) -> Life:
    namespace = where.namespace()
    async with where.operator() as operator:
        await asyncio.sleep(_SETTLE_SECONDS)
        audit, cpu = Audit(where.plane.audit_log), cpu_seconds(operator.process.pid)
        submitted = await where.submit(job(namespace, "ours", pods))
        await where.until(lambda: _all_run(where, submitted, pods))
        cpu = cpu_seconds(operator.process.pid) - cpu
    life = _life(audit, namespace, cpu)
    await _tidy(where, namespace)
    return life


async def _all_run(where: Cluster, submitted: Object, pods: int) -> bool:
    shown = (await where.status(submitted)).get("replicaStatuses") or {}
    return sum(role.get("active") or 0 for role in shown.values()) == pods


def _life(audit: Audit, namespace: str, cpu: float) -> Life:
    asked = audit.requests(namespace=namespace)
    applied = next(request.received for request in asked if request.is_a("create", "pytorchjobs"))
    first, last = _span(audit, OPERATOR, namespace)
    running = max(request.answered for request in asked if request.is_a("patch", "pods/status"))
    status = max(request.answered for request in asked if request.is_a("patch", _STATUS))
    return Life(first - applied, last - applied, running - applied, status - applied, cpu)


def _span(audit: Audit, user_agent: str, namespace: str) -> tuple[float, float]:
    posts = [post for post in audit.requests(user_agent, namespace) if post.is_a("create", "pods")]
    return min(post.received for post in posts), max(post.answered for post in posts)


async def _tidy(where: Cluster, namespace: str) -> None:
    await asyncio.to_thread(where.empty, namespace)
    await asyncio.sleep(_SETTLE_SECONDS)
