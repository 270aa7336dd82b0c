"""Every request of the operator for one job from `apply` to Succeeded, and in the ten seconds after."""

import asyncio
from collections import Counter

from benchmarks.audit import OPERATOR, Audit
from benchmarks.cluster import Cluster, Object, cluster, job
from benchmarks.table import Row, load

_READS = ("get", "list", "watch")
_QUIET_SECONDS = 10.0
_Counts = Counter[tuple[str, str]]


async def measure(pods: int) -> list[Row]:
    """Count; the pods end by themselves ten seconds after they started."""
    async with cluster() as where, where.operator() as operator:
        await asyncio.sleep(3)
        assert operator.leads
        whole = Audit(where.plane.audit_log)
        submitted = await where.submit(job(where.namespace(), "life", pods, ends_after="10s"))
        await where.until(lambda: _succeeded(where, submitted))
        await asyncio.sleep(2)
        quiet = Audit(where.plane.audit_log)
        await asyncio.sleep(_QUIET_SECONDS)
        counts, after = whole.counts(OPERATOR), quiet.counts(OPERATOR)
    return _rows(pods, counts, after)


def _rows(pods: int, counts: _Counts, after: _Counts) -> list[Row]:
    events = Counter({what: number for what, number in counts.items() if what[1] == "events"})
    reads = Counter({what: number for what, number in (counts - events).items() if what[0] in _READS})
    writes = counts - events - reads
    command = f"python -m benchmarks life --pods {pods}"
    name, extra = f"1 job x {pods} pods, applied to Succeeded: ", writes.total() - pods - 1
    return [
        Row(f"{name}writes", _told(writes), f"{pods} pods + 1 Service", f"+ {extra}",
            "pods + 1 + <= 3", command, load(), _samples(writes)),
        Row(f"{name}events, beside them", _told(events), "", "", "", command, load(), _samples(events)),
        Row(f"{name}reads", _told(reads), "", "", "0", command, load(), _samples(reads)),
        Row(f"{name}requests in the 10 s after", _told(after), "", "", "0", command, load(), _samples(after)),
    ]  # fmt: skip


async def _succeeded(where: Cluster, submitted: Object) -> bool:
    conditions = (await where.status(submitted)).get("conditions") or ()
    return any(condition["type"] == "Succeeded" and condition["status"] == "True" for condition in conditions)


def _samples(counts: _Counts) -> dict[str, list[float]]:
    return {"all": [counts.total()], **{" ".join(what): [number] for what, number in sorted(counts.items())}}


def _told(counts: _Counts) -> str:
    each = ", ".join(f"{number} {verb} {resource}" for (verb, resource), number in sorted(counts.items()))
    return f"{counts.total()} ({each})" if each else "0"
