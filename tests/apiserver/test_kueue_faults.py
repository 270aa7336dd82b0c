"""The operator is killed behind each of its writes, while the real Kueue admits, takes back and evicts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytorchjob_operator.names import LABEL_KUEUE_QUEUE
from tests.apiserver import kueue_process as kueue
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.kueue_process import Object, have, submit, workers
from tests.apiserver.operator_process import Audit, Jobs, Kubelet, OperatorProcess
from tests.waiting import becomes, until_async

pytestmark = kueue.MARKS
jobs = kueue.jobs
QUEUE = {LABEL_KUEUE_QUEUE: kueue.QUEUE}
HIGH = QUEUE | {kueue.LABEL_PRIORITY: kueue.HIGH}
READS = {"get", "list", "watch"}
KILLS = 100
"""More than the story has writes; an operator that wrote at each start would never come to rest otherwise."""


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with kueue.serving(tmp_path_factory.mktemp("kueue-faults"), kueue.POD, external=True, operated=False) as plane:
        yield plane


class Killer:
    """Kills the operator as soon as the audit log has a write of it, and starts it again."""

    def __init__(self, operator: OperatorProcess, jobs: Jobs) -> None:
        self._operator, self._jobs, self._audit = operator, jobs, Audit(jobs.plane)
        self._ended = threading.Event()
        self.kills: list[str] = []
        """What had been written last before each kill."""
        self.most_pods = 0
        """How many pods used quota at a kill, at most."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._operator.stop()

    def _run(self) -> None:
        known = 0
        while not self._ended.wait(0.02):
            written = [each for each in self._audit.operator(self._jobs.namespace) if each.verb not in READS]
            if len(written) > known and len(self.kills) < KILLS:
                self._operator.kill()
                self.kills.append(f"{written[-1].verb} {written[-1].resource} {written[-1].name}")
                self.most_pods = max(self.most_pods, len(self._pods()))
                self._operator.start()
                self._operator.wait_ready()
                known = len(written)

    def _pods(self) -> list[Object]:
        found = self._jobs.plane.read(f"/api/v1/namespaces/{self._jobs.namespace}/pods")["items"]
        return [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def used(jobs: Jobs) -> str:
    """The quota that is in use, by the queue's own word."""
    found = jobs.plane.get("-n", jobs.namespace, "localqueue", kueue.QUEUE)
    return str(found["status"]["flavorsUsage"][0]["resources"][0]["total"])


async def succeed(kubelet: Kubelet, jobs: Jobs, job: str) -> None:
    await kubelet.report("Succeeded", *await workers(kubelet, job))
    await becomes(lambda: jobs.condition(job, "Succeeded"))


async def runs(jobs: Jobs, *names: str) -> None:
    for name in names:
        await becomes(lambda name=name: jobs.condition(name, "Running"))


async def test_the_end_is_the_same_and_no_quota_is_left_over(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet, tmp_path: Path
) -> None:
    killer = Killer(kueue.operator(control_plane, tmp_path, external=True).wait_ready(), jobs)
    with killer.at_work():
        submit(jobs, "other", labels=QUEUE, workers=1, master=0)
        await runs(jobs, "other")
        elastic = {"minReplicas": 2, "maxReplicas": 4}
        submit(jobs, "x", workers=4, master=0, elastic=elastic, labels=QUEUE)
        await runs(jobs, "x")
        assert await have(kubelet, "x", 2)

        kueue.add_queue(jobs, kueue.QUEUE, 5)
        await until_async(lambda: have(kubelet, "x", 4))
        submit(jobs, "late", labels=QUEUE, workers=2, master=0)
        await runs(jobs, "late")
        assert await have(kubelet, "x", 2)

        submit(jobs, "urgent", labels=HIGH, workers=5, master=0)
        await runs(jobs, "urgent")
        assert [await have(kubelet, name, 0) for name in ("other", "x", "late")] == [True] * 3
        await succeed(kubelet, jobs, "urgent")
        await runs(jobs, "other", "x", "late")

        await succeed(kubelet, jobs, "late")
        await until_async(lambda: have(kubelet, "x", 4))
        await succeed(kubelet, jobs, "other")
        await succeed(kubelet, jobs, "x")
        await becomes(lambda: used(jobs) == "0")
        submit(jobs, "next", labels=QUEUE, workers=5, master=0)
        await runs(jobs, "next")
    assert killer.most_pods <= 5
    assert 30 < len(killer.kills) < KILLS
