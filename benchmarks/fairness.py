"""One pod among many: how long a small job of one namespace waits while another namespace's jobs are being created.

The large jobs never get ready here: the figure is about the time in which the operator creates their pods. Times are
the audit log's, from the creation of the small job to the creation of its pod.
"""

import asyncio

from benchmarks.audit import OPERATOR, Audit
from benchmarks.cluster import Cluster, cluster, job
from benchmarks.table import Row, load, spread

_AT_WORK = 200
"""Pods that the operator has created before the first small job comes."""
_PAUSE_SECONDS = 2.0


async def measure(jobs: int, pods: int, repeat: int) -> list[Row]:
    """Submit the large jobs of one namespace, then small jobs of another namespace one after another."""
    before = load()
    async with cluster(nodes=0) as where, where.operator():
        greedy, modest = where.namespace(), where.namespace()
        audit = Audit(where.plane.audit_log)
        await asyncio.gather(*(where.submit(job(greedy, f"large-{index}", pods)) for index in range(jobs)))
        await where.until(lambda: _created(audit, greedy, _AT_WORK))
        waits = [await _wait(where, audit, modest, f"small-{index}") for index in range(repeat)]
        made = len([request for request in audit.requests(OPERATOR, greedy) if request.is_a("create", "pods")])
    assert made < jobs * pods, "the large jobs were complete before the last small one"
    return [
        Row(f"1 job x 1 pod beside {jobs} jobs x {pods} pods of another namespace: apply to pod", spread(waits), "", "",
            "< 1 s", f"python -m benchmarks fairness --jobs {jobs} --pods {pods} --repeat {repeat}",
            f"{before} to {load()}", {"apply to pod": waits}),
    ]  # fmt: skip


async def _wait(where: Cluster, audit: Audit, namespace: str, name: str) -> float:
    """Seconds from the submission of one small job to its pod."""
    count = len([request for request in audit.requests(OPERATOR, namespace) if request.is_a("create", "pods")])
    small = job(namespace, name, 2)
    del small["spec"]["pytorchReplicaSpecs"]["Worker"]
    await where.submit(small)
    await where.until(lambda: _created(audit, namespace, count + 1))
    await asyncio.sleep(_PAUSE_SECONDS)
    asked = audit.requests(namespace=namespace)
    start = max(request.received for request in asked if request.is_a("create", "pytorchjobs"))
    return max(request.answered for request in asked if request.is_a("create", "pods")) - start


async def _created(audit: Audit, namespace: str, count: int) -> bool:
    asked = await asyncio.to_thread(audit.requests, OPERATOR, namespace)
    return len([request for request in asked if request.is_a("create", "pods")]) >= count
