"""Gang scheduling with the resources of the real schedulers, whose part the tests play."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import BIN, ControlPlane
from tests.apiserver.operator_process import Jobs, OperatorProcess
from tests.waiting import becomes

pytestmark = [pytest.mark.apiserver]

RESOURCES = BIN / "podgroups"
VOLCANO = "podgroups.scheduling.volcano.sh"
PLUGINS = "podgroups.scheduling.x-k8s.io"
Start = Callable[..., OperatorProcess]


@pytest.fixture
def volcano(control_plane: ControlPlane) -> ControlPlane:
    """A cluster that has Volcano's PodGroups."""
    install(control_plane, VOLCANO)
    return control_plane


@pytest.fixture
def plugins(control_plane: ControlPlane) -> ControlPlane:
    """A cluster that has scheduler-plugins' PodGroups."""
    install(control_plane, PLUGINS)
    return control_plane


def install(plane: ControlPlane, name: str) -> None:
    plural, _, group = name.partition(".")
    done = plane.kubectl("apply", "-f", str(RESOURCES / f"{group}_{plural}.yaml"))
    assert done.returncode == 0, f"{done.stderr}: run `make binaries-apiserver` first"
    assert plane.kubectl("wait", "--for=create", f"crd/{name}").returncode == 0
    assert plane.kubectl("wait", "--for=condition=Established", f"crd/{name}").returncode == 0


@pytest.fixture
def jobs(control_plane: ControlPlane, make_jobs: Callable[[], Jobs]) -> Jobs:
    return make_jobs()


@pytest.fixture
def start(control_plane: ControlPlane, jobs: Jobs, tmp_path: Path) -> Iterator[Start]:
    """Start an operator for the test's namespace alone, with these settings."""
    started: list[OperatorProcess] = []

    def go(**settings: str) -> OperatorProcess:
        env = {f"PYTORCHJOB_{name.upper()}": text for name, text in settings.items()}
        started.append(OperatorProcess(control_plane, tmp_path, "--no-leader-elect", "-n", jobs.namespace, **env))
        return started[-1].wait_ready()

    yield go
    assert [process.stop() for process in started] == [0] * len(started)
    assert not [process for process in started if "Traceback" in process.log]


def gang(scheduler: str = "volcano", **policy: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gangScheduler": scheduler, **policy}}


def group(jobs: Jobs, kind: str = VOLCANO, name: str = "x") -> dict[str, Any]:
    """The job's PodGroup; empty while there is none."""
    found = jobs.plane.get("-n", jobs.namespace, kind)["items"]
    return next((made for made in found if made["metadata"]["name"] == name), {})


def judge(jobs: Jobs, phase: str, **unschedulable: str) -> None:
    """What Volcano says of the PodGroup; it keeps its status inside the object."""
    conditions = [{"type": "Unschedulable", "status": "True", **unschedulable}] if unschedulable else []
    patch = {"status": {"phase": phase, "conditions": conditions}}
    jobs.kubectl("patch", VOLCANO, "x", "--type=merge", "-p", json.dumps(patch))


def pods(jobs: Jobs) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = jobs.plane.get("-n", jobs.namespace, "pods")["items"]
    return found


def report(jobs: Jobs, phase: str) -> None:
    patch = json.dumps({"status": {"phase": phase}})
    for pod in pods(jobs):
        jobs.kubectl("patch", "pod", pod["metadata"]["name"], "--subresource=status", "-p", patch)


def waits(jobs: Jobs, reason: str) -> dict[str, Any] | None:
    """The condition Waiting, if it has this reason."""
    found = jobs.condition("x", "Waiting")
    return found if found and found["reason"] == reason else None


async def let_in(jobs: Jobs, count: int) -> None:
    await becomes(lambda: group(jobs))
    judge(jobs, "Inqueue")
    await becomes(lambda: len(pods(jobs)) == count)


async def test_pods_wait_until_volcano_lets_the_gang_in(volcano: ControlPlane, start: Start, jobs: Jobs) -> None:
    start()
    jobs.apply("x", 2, gang(queue="research", priorityClass="high"))
    await becomes(lambda: waits(jobs, "PodGroupPending"))
    spec = group(jobs)["spec"]
    assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (3, "research", "high")
    judge(jobs, "Pending", reason="NotEnoughResources", message="3/0 tasks in gang unschedulable")
    await becomes(lambda: waits(jobs, "PodGroupUnschedulable"))
    assert "NotEnoughResources: 3/0 tasks" in (jobs.condition("x", "Waiting") or {})["message"]
    status = jobs.get("x")["status"]
    assert ("startTime" in status, bool(status["lastReconcileTime"]), pods(jobs)) == (False, True, [])
    judge(jobs, "Inqueue")
    await becomes(lambda: len(pods(jobs)) == 3)
    marks = {
        (pod["spec"]["schedulerName"], pod["metadata"]["annotations"]["volcano.sh/task-spec"]) for pod in pods(jobs)
    }
    assert marks == {("volcano", "master"), ("volcano", "worker")}
    report(jobs, "Running")
    await becomes(lambda: jobs.condition("x", "Running"))
    assert jobs.condition("x", "Waiting") is None
    assert "startTime" in jobs.get("x")["status"]


async def test_the_podgroup_follows_the_spec_and_keeps_its_queue(
    volcano: ControlPlane, start: Start, jobs: Jobs
) -> None:
    start()
    jobs.apply("x", 1, gang())
    await let_in(jobs, 2)
    assert group(jobs)["spec"]["queue"] == "default"
    jobs.kubectl("patch", VOLCANO, "x", "--type=merge", "-p", '{"spec": {"queue": "given-by-an-admin"}}')
    jobs.kubectl("scale", "ptj", "x", "--replicas=3")
    await becomes(lambda: group(jobs)["spec"]["minMember"] == 4)
    await becomes(lambda: len(pods(jobs)) == 4)
    jobs.patch("x", {"spec": {"runPolicy": gang(minAvailable=2)}})
    await becomes(lambda: group(jobs)["spec"]["minMember"] == 2)
    left = group(jobs)
    assert (left["spec"]["queue"], left["status"]["phase"]) == ("given-by-an-admin", "Inqueue")


async def test_an_elastic_job_asks_for_its_minimum(volcano: ControlPlane, start: Start, jobs: Jobs) -> None:
    start()
    jobs.apply("x", 3, {"suspend": True, **gang()})
    change = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}, "runPolicy": {"suspend": False}}
    jobs.patch("x", {"spec": change})
    await let_in(jobs, 4)
    assert group(jobs)["spec"]["minMember"] == 3


async def test_it_is_given_back_at_suspension_and_at_the_end(volcano: ControlPlane, start: Start, jobs: Jobs) -> None:
    start()
    jobs.apply("x", 1, gang())
    await let_in(jobs, 2)
    first = group(jobs)["metadata"]["uid"]
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": True}}})
    await becomes(lambda: not group(jobs) and not pods(jobs))
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": False}}})
    await let_in(jobs, 2)
    assert group(jobs)["metadata"]["uid"] != first
    report(jobs, "Succeeded")
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    await becomes(lambda: not group(jobs))
    await becomes(lambda: "SuccessfulDeletePodGroup" in {event["reason"] for event in jobs.events()})
    assert len(pods(jobs)) == 2


async def test_scheduler_plugins_for_every_job_but_one(plugins: ControlPlane, start: Start, jobs: Jobs) -> None:
    start(gang_scheduler="batch")
    jobs.apply("x", 1, {"schedulingPolicy": {"scheduleTimeoutSeconds": 30}})
    jobs.apply("alone", 1, gang("none"))
    await becomes(lambda: len(pods(jobs)) == 4)
    spec = group(jobs, PLUGINS)["spec"]
    assert (spec["minMember"], spec["scheduleTimeoutSeconds"]) == (2, 30)
    assert group(jobs, PLUGINS, "alone") == {}
    told = {
        (pod["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group"), pod["spec"]["schedulerName"])
        for pod in pods(jobs)
    }
    assert told == {("x", "batch"), (None, "default-scheduler")}


async def test_another_scheduler_in_a_template_stays_and_is_told_of(
    volcano: ControlPlane, start: Start, jobs: Jobs
) -> None:
    start(gang_scheduler="volcano")
    template = {"spec": {"schedulerName": "mine", "containers": [{"name": "pytorch", "image": "train:1"}]}}
    jobs.apply("x", 1, template=template)
    await let_in(jobs, 2)
    assert {pod["spec"]["schedulerName"] for pod in pods(jobs)} == {"mine"}
    await becomes(lambda: [event["reason"] for event in jobs.events()].count("SetPodTemplateSchedulerName") == 2)


async def test_a_missing_scheduler_is_told_and_the_job_goes_on_once_it_is_there(
    control_plane: ControlPlane, start: Start, jobs: Jobs
) -> None:
    control_plane.kubectl("delete", "crd", PLUGINS, "--ignore-not-found")
    operator = start()
    jobs.apply("x", 1, gang("batch"))
    await becomes(lambda: waits(jobs, "GangSchedulerUnavailable"), story=lambda: operator.log[-2000:])
    message = (jobs.condition("x", "Waiting") or {})["message"]
    assert all(word in message for word in ("scheduling.x-k8s.io/v1alpha1 PodGroup", "install batch", "none"))
    assert pods(jobs) == []
    install(control_plane, PLUGINS)
    await becomes(lambda: len(pods(jobs)) == 2, story=lambda: operator.log[-2000:])
    report(jobs, "Running")
    await becomes(lambda: jobs.condition("x", "Running") and not jobs.condition("x", "Waiting"))


async def test_a_podgroup_that_v1_made_is_taken_over(volcano: ControlPlane, start: Start, jobs: Jobs) -> None:
    jobs.apply("x", 1, gang())
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "x", "controller": True}
    owner |= {"uid": jobs.get("x")["metadata"]["uid"], "blockOwnerDeletion": True}
    made = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "status": {"phase": "Running"}}
    made |= {"metadata": {"name": "x", "namespace": jobs.namespace, "ownerReferences": [owner]}}
    assert volcano.apply({**made, "spec": {"minMember": 2, "queue": "v1s"}}).returncode == 0
    uid = group(jobs)["metadata"]["uid"]
    start()
    await becomes(lambda: len(pods(jobs)) == 2)
    await becomes(lambda: group(jobs)["metadata"].get("labels"))
    taken = group(jobs)
    assert (taken["metadata"]["uid"], taken["spec"]["queue"], taken["status"]["phase"]) == (uid, "v1s", "Running")
