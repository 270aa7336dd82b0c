"""Defects of jobs in a queue: who has quota when, and who gives it back."""

from collections.abc import Sequence

from tests.planted import Planted

QUEUE = "pytorchjob_operator/plan/queue.py"
TESTS = ("tests/plan/test_queue.py",)
ABOVE = "usage is never above quota"
LOST = "nothing is lost, and nobody waits for ever"

DEFECTS: Sequence[Planted] = [
    Planted(
        "quota is given back while pods are still ending",
        ABOVE,
        QUEUE,
        """        if not _pods(seen, part):
            yield ReportWorkload(""",
        """        if True:
            yield ReportWorkload(""",
        TESTS,
    ),
    Planted(
        "a Workload goes while its pod is still ending",
        ABOVE,
        QUEUE,
        "child.name not in wanted and not _pods_of(seen, child.name):",
        "child.name not in wanted:",
        TESTS,
    ),
    Planted(
        "a pod is created before its node labels are known",
        "a pod runs where its quota is",
        QUEUE,
        "                asks |= unread\n                continue\n",
        "                continue\n",
        TESTS,
    ),
    Planted(
        "a further worker has the job's priority",
        "an elastic job shrinks before another one of its priority waits",
        QUEUE,
        "priority.value if part.needed else priority.value - 1,",
        "priority.value,",
        TESTS,
    ),
    Planted(
        "a job that waits holds quota for further workers",
        LOST,
        QUEUE,
        "(part.needed or not queueing.stops)]",
        "True]",
        TESTS,
    ),
    Planted(
        "an upgrade of the operator stops all jobs of a queue",
        "an upgrade changes no running pod",
        QUEUE,
        'return found.partition("-")[0]',
        "return found",
        TESTS,
    ),
    Planted(
        "the Workload of a job that has ended keeps its quota",
        LOST,
        QUEUE,
        "if not child.deleting and state.standing is not Standing.FINISHED:",
        "if False:",
        TESTS,
    ),
    Planted(
        "two controllers make Workloads of a job",
        "one integration at a time",
        QUEUE,
        "theirs = any(not child.spec_hash for child in seen.of(ChildKind.WORKLOAD))",
        "theirs = False",
        TESTS,
    ),
]
