"""/metrics of a running operator, to the number: whole lives, each kind of end, a restart of the operator between."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.resource import PODS
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

PAIR = ("master-0", "worker-0")
COUNTS = ("created", "successful", "failed", "restarted", "deleted")
PULL = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "train:1"'}


class Scrape:
    """The metrics that one operator publishes about one namespace."""

    def __init__(self, operator: OperatorProcess, namespace: str) -> None:
        text = operator.http("/metrics")[1]
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]
        self._namespace = namespace

    def jobs(self) -> dict[str, float]:
        """v1's counters. All of them exist as soon as the namespace has had a job."""
        labels = {"job_namespace": self._namespace, "framework": "pytorch"}
        return {what: self._value(f"training_operator_jobs_{what}_total", labels) for what in COUNTS}

    def phases(self) -> dict[str, float]:
        """The number of jobs by phase, without empty phases."""
        found = {
            sample.labels["phase"]: sample.value
            for sample in self._samples
            if sample.name == "pytorchjob_operator_jobs"
        }
        return {phase: value for phase, value in found.items() if value}

    def pod_restarts(self) -> dict[str, float]:
        """The number of lost pods by cause."""
        name = "pytorchjob_operator_pod_restarts_total"
        return {
            sample.labels["cause"]: sample.value for sample in self._samples if sample.name == name and sample.value
        }

    def starts(self) -> float:
        return self._value("pytorchjob_operator_time_to_running_seconds_count", {})

    def _value(self, name: str, labels: dict[str, str]) -> float:
        (found,) = [sample.value for sample in self._samples if (sample.name, sample.labels) == (name, labels)]
        return float(found)


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    return make_jobs()


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path, jobs: Jobs) -> Iterator[Callable[[], OperatorProcess]]:
    """Starts operators that see this test's namespace only and share a Lease."""
    started: list[OperatorProcess] = []
    lease = {"PYTORCHJOB_LEASE_NAME": f"test-{secrets.token_hex(4)}", "PYTORCHJOB_NAMESPACES": jobs.namespace}

    def begin() -> OperatorProcess:
        started.append(OperatorProcess(control_plane, tmp_path, **lease))
        return started[-1]

    yield begin
    for operator in started:
        operator.stop()


async def runs(jobs: Jobs, kubelet: Kubelet, name: str, **role: Any) -> None:
    """A job of two pods that run, and whose status says so."""
    pods = tuple(f"{name}-{role}" for role in PAIR)
    jobs.apply(name, 1, **role)
    await until_async(lambda: there(kubelet, *pods))
    await kubelet.report("Running", *pods)
    await becomes(lambda: jobs.condition(name, "Running"))


async def there(kubelet: Kubelet, *names: str) -> bool:
    return set(names) <= (await kubelet.pods()).keys()


async def uid_of(kubelet: Kubelet, name: str) -> str | None:
    pod = (await kubelet.pods()).get(name)
    return None if pod is None else str(pod["metadata"]["uid"])


async def succeed(jobs: Jobs, kubelet: Kubelet, name: str) -> None:
    await kubelet.report("Succeeded", *(f"{name}-{role}" for role in PAIR))
    await becomes(lambda: jobs.condition(name, "Succeeded"))


async def crash(jobs: Jobs, kubelet: Kubelet, name: str) -> None:
    """The worker is killed, made again, and runs."""
    pod = f"{name}-worker-0"
    before = await uid_of(kubelet, pod)
    await kubelet.report("Failed", pod, exit_code=137)
    await until_async(lambda: replaced(kubelet, pod, before))
    await kubelet.report("Running", pod)
    await becomes(lambda: jobs.condition(name, "Running"))


async def replaced(kubelet: Kubelet, pod: str, before: str | None) -> bool:
    return await uid_of(kubelet, pod) not in (None, before)


async def test_every_end_is_counted_once_and_a_new_operator_begins_anew(
    start: Callable[[], OperatorProcess], jobs: Jobs, kubelet: Kubelet
) -> None:
    operator = start().wait_ready()
    await runs(jobs, kubelet, "good")
    await succeed(jobs, kubelet, "good")
    jobs.patch("good", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}})
    await runs(jobs, kubelet, "bad", restartPolicy="Never")
    await kubelet.report("Failed", "bad-worker-0", exit_code=1)
    await becomes(lambda: jobs.condition("bad", "Failed"))
    await runs(jobs, kubelet, "late")
    jobs.patch("late", {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}})
    await becomes(lambda: jobs.condition("late", "Failed"))
    await runs(jobs, kubelet, "shaky", restartPolicy="ExitCode")
    await crash(jobs, kubelet, "shaky")
    jobs.apply("held", 1, {"suspend": True})
    await becomes(lambda: jobs.condition("held", "Suspended"))
    jobs.kubectl("delete", "ptj", "bad")
    await becomes(lambda: jobs.count("ptj") == 3)
    await becomes(lambda: Scrape(operator, jobs.namespace).jobs()["deleted"] == 2)
    seen = Scrape(operator, jobs.namespace)
    assert seen.jobs() == {"created": 5, "successful": 1, "failed": 2, "restarted": 1, "deleted": 2}
    assert seen.pod_restarts() == {"Signal": 1}
    assert seen.phases() == {"Failed": 1, "Running": 1, "Suspended": 1}
    assert seen.starts() == 4

    assert operator.stop() == 0
    operator = start().wait_ready()
    await becomes(lambda: Scrape(operator, jobs.namespace).phases() == seen.phases())
    await succeed(jobs, kubelet, "shaky")
    jobs.kubectl("delete", "ptj", "late")
    await becomes(lambda: Scrape(operator, jobs.namespace).jobs()["deleted"] == 1)
    seen = Scrape(operator, jobs.namespace)
    assert seen.jobs() == {"created": 0, "successful": 1, "failed": 0, "restarted": 0, "deleted": 1}
    assert (seen.phases(), seen.starts()) == ({"Succeeded": 1, "Suspended": 1}, 0)


async def test_a_standby_shows_the_jobs_and_counts_nothing(
    start: Callable[[], OperatorProcess], jobs: Jobs, kubelet: Kubelet
) -> None:
    leader = start().wait_ready()
    standby = start().wait_ready(leading=False)
    await runs(jobs, kubelet, "x")
    await succeed(jobs, kubelet, "x")
    await becomes(lambda: Scrape(standby, jobs.namespace).phases() == {"Succeeded": 1})
    assert Scrape(leader, jobs.namespace).jobs()["successful"] == 1
    assert set(Scrape(standby, jobs.namespace).jobs().values()) == {0}


async def test_what_keeps_a_pod_from_starting_is_told_once_and_shown_as_long_as_it_lasts(
    start: Callable[[], OperatorProcess], client: ApiClient, jobs: Jobs, kubelet: Kubelet
) -> None:
    start().wait_ready()
    jobs.apply("x", 1)
    await until_async(lambda: there(kubelet, "x-master-0", "x-worker-0"))
    waiting = {"name": "pytorch", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Pending", "containerStatuses": [{**waiting, "state": {"waiting": PULL}}]}
    for name in ("x-master-0", "x-worker-0"):
        await client.patch_status(PODS, jobs.namespace, name, {"status": status})
    await becomes(lambda: jobs.condition("x", "Waiting"))
    found = jobs.condition("x", "Waiting") or {}
    assert found["reason"] == PULL["reason"]
    assert f": {PULL['message']}" in found["message"]
    await kubelet.report("Running")
    await becomes(lambda: jobs.conditions("x") == [("Created", "True"), ("Running", "True")])
    messages = [event["message"] for event in jobs.events() if event["reason"] == PULL["reason"]]
    assert messages
    assert all("container pytorch waiting message: Back-off pulling" in message for message in messages)
    assert len(messages) <= 2
