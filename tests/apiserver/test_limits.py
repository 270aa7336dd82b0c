"""Suspension, deadline, budget, clean-up and TTL against a real API server; pods report what the test says."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Audit, Jobs, Kubelet
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

CREATED = ("Created", "True")
PAIR = {"x-master-0", "x-worker-0"}
SUSPENDED = [CREATED, ("Running", "False"), ("Suspended", "True")]


async def made(jobs: Jobs, kubelet: Kubelet, run_policy: dict[str, Any] | None = None, restart: str = "Never") -> None:
    """A job of two pods."""
    jobs.apply("x", 1, run_policy, restartPolicy=restart)
    await until_async(lambda: pods_are(kubelet, PAIR))


async def started(
    jobs: Jobs, kubelet: Kubelet, run_policy: dict[str, Any] | None = None, restart: str = "Never"
) -> None:
    """A job of two pods that run, and whose status says so."""
    await made(jobs, kubelet, run_policy, restart)
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))


async def pods_are(kubelet: Kubelet, names: set[str]) -> bool:
    return set(await kubelet.pods()) == names


async def replaced(kubelet: Kubelet, name: str, uid: str) -> bool:
    pod = (await kubelet.pods()).get(name)
    return pod is not None and pod["metadata"]["uid"] != uid


async def uid_of(kubelet: Kubelet, name: str) -> str:
    return str((await kubelet.pods())[name]["metadata"]["uid"])


def shown(jobs: Jobs) -> list[tuple[str, str, str, str]]:
    """Type, status, reason and message of each condition, in their order."""
    found = jobs.get("x")["status"]["conditions"]
    return [(condition["type"], condition["status"], condition["reason"], condition["message"]) for condition in found]


def message(jobs: Jobs) -> str:
    return str((jobs.condition("x", "Failed") or {}).get("message"))


def start_time(jobs: Jobs) -> datetime:
    return datetime.fromisoformat(jobs.get("x")["status"]["startTime"])


async def test_kueue_evicts_a_job_and_admits_it_to_other_nodes(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet)
    before = start_time(jobs)
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": True}}})
    await becomes(lambda: jobs.conditions("x") == SUSPENDED)
    await becomes(lambda: jobs.count("pods", "services") == 0)
    assert active(jobs) == [0, 0]
    assert shown(jobs)[1:] == [
        ("Running", "False", "PyTorchJobSuspended", "PyTorchJob x is suspended."),
        ("Suspended", "True", "PyTorchJobSuspended", "PyTorchJob x is suspended."),
    ]
    await asyncio.sleep(1.1)  # times in a status are whole seconds
    admit(jobs, {"pool": "b"})
    await until_async(lambda: pods_are(kubelet, PAIR))
    assert [pod["spec"]["nodeSelector"] for pod in (await kubelet.pods()).values()] == [{"pool": "b"}] * 2
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))
    assert shown(jobs) == [
        ("Created", "True", "PyTorchJobCreated", "PyTorchJob x is created."),
        ("Suspended", "False", "PyTorchJobResumed", "PyTorchJob x is resumed."),
        ("Running", "True", "PyTorchJobRunning", "PyTorchJob x is running."),
    ]
    assert start_time(jobs) > before


def admit(jobs: Jobs, selector: dict[str, str]) -> None:
    """What Kueue sends: new places for the pods and the end of the suspension, in one update."""
    role = {"template": {"spec": {"nodeSelector": selector}}}
    roles = {"Master": role, "Worker": role}
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": roles}})


def active(jobs: Jobs) -> list[int]:
    return [role.get("active", 0) for role in jobs.get("x")["status"]["replicaStatuses"].values()]


async def test_a_job_that_is_made_suspended_makes_nothing_until_it_is_admitted(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 1, {"suspend": True})
    await becomes(lambda: jobs.conditions("x") == [CREATED, ("Suspended", "True")])
    assert jobs.count("pods", "services") == 0
    assert "startTime" not in jobs.get("x")["status"]
    admit(jobs, {"pool": "a"})
    await until_async(lambda: pods_are(kubelet, PAIR))
    await becomes(lambda: jobs.get("x")["status"].get("startTime"))


async def test_the_deadline_fires_by_itself_and_keeps_what_has_ended(jobs: Jobs, kubelet: Kubelet) -> None:
    await made(jobs, kubelet, {"activeDeadlineSeconds": 5})
    await kubelet.report("Running", "x-master-0")
    await kubelet.report("Succeeded", "x-worker-0")
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert message(jobs) == "Job x has failed because it was active longer than specified deadline"
    await until_async(lambda: pods_are(kubelet, {"x-worker-0"}))
    assert jobs.get("x")["status"]["completionTime"]


async def test_the_budget_counts_pods_that_are_made_again(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet, {"backoffLimit": 2}, restart="OnFailure")
    first = await uid_of(kubelet, "x-worker-0")
    await kubelet.report("Failed", "x-worker-0", exit_code=1)
    await until_async(lambda: replaced(kubelet, "x-worker-0", first))
    assert jobs.get("x")["status"]["restarts"] == 1
    second = await uid_of(kubelet, "x-worker-0")
    await kubelet.report("Failed", "x-worker-0", exit_code=1)
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert message(jobs) == "Job x has failed because it has reached the specified backoff limit"
    assert await uid_of(kubelet, "x-worker-0") == second


async def test_exit_code_makes_a_pod_again_after_a_signal_and_ends_the_job_after_an_error(
    jobs: Jobs, kubelet: Kubelet
) -> None:
    await started(jobs, kubelet, {"ttlSecondsAfterFinished": 3600}, restart="ExitCode")
    first = await uid_of(kubelet, "x-master-0")
    await kubelet.report("Failed", "x-master-0", exit_code=137)
    await until_async(lambda: replaced(kubelet, "x-master-0", first))
    await becomes(lambda: jobs.conditions("x") == [CREATED, ("Restarting", "True")])
    await kubelet.report("Failed", "x-worker-0", exit_code=1)
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert message(jobs) == 'job "x" is failing because "Worker" replica(s) failed.'
    assert jobs.get("x")["status"]["completionTime"]


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        pytest.param("None", PAIR, 1, id="None keeps what there is"),
        pytest.param("Running", {"x-master-0"}, 1, id="Running stops what runs"),
        pytest.param("All", set(), 0, id="All leaves nothing but the job"),
    ],
)
async def test_clean_up(jobs: Jobs, kubelet: Kubelet, policy: str, pods: set[str], services: int) -> None:
    await started(jobs, kubelet, {"cleanPodPolicy": policy})
    await kubelet.report("Succeeded", "x-master-0")
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    await until_async(lambda: pods_are(kubelet, pods))
    await becomes(lambda: jobs.count("services") == services)
    assert jobs.count("ptj") == 1


async def test_the_ttl_deletes_the_job_and_all_that_it_has(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit = Audit(control_plane)
    await started(jobs, kubelet, {"ttlSecondsAfterFinished": 3})
    await kubelet.report("Succeeded")
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    await becomes(lambda: jobs.count("ptj", "pods", "services") == 0)
    counts = audit.counts(jobs.namespace)
    assert counts["delete", "pytorchjobs"] == 1
    assert counts["delete", "pods"] == counts["delete", "services"] == 0
