"""One job through one fault after another: its training goes on, and every line that it prints is right.

Each test leaves a job behind that trains again, and the next one strikes the same job.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from benchmarks.recovery import cells
from benchmarks.recovery.cells import Scene, Struck
from benchmarks.recovery.contenders import LEAST, WORKERS
from benchmarks.recovery.stage import stage_in
from e2e import elastic, faults
from e2e.conftest import fresh_namespace
from e2e.drama import GRACE_SECONDS, SHELL, TORCHRUN, WARM, Drama, termination
from e2e.kubectl import JOB_LABEL, Kubectl, until

pytestmark = pytest.mark.skipif(not faults.on_kind(), reason="strikes nodes, which are containers")


@pytest.fixture(scope="module")
def drama(operator: Kubectl) -> Iterator[Drama]:
    with fresh_namespace(operator) as kubectl, stage_in(kubectl, operator) as stage:
        yield Drama(stage, WARM)


@pytest.fixture(scope="module", params=[TORCHRUN, SHELL], ids=["torchrun", "in a shell"])
def unchanged(operator: Kubectl, request: pytest.FixtureRequest) -> Iterator[Drama]:
    with fresh_namespace(operator) as kubectl, stage_in(kubectl, operator) as stage:
        yield Drama(stage, request.param)


def kill_launcher(scene: Scene) -> Struck:
    """Kill the process below the first one of a container, which starts it again."""
    name = scene.plain()
    children = scene.stage.kubectl("exec", name, "--", "cat", "/proc/1/task/1/children").split()
    return Struck(faults.signal_process(scene.pods()[name], pid=int(children[0])), name)


def freeze_launcher(scene: Scene) -> Struck:
    """Stop the process below the first one of a container: its node and its pod stay well."""
    name = scene.plain()
    children = scene.stage.kubectl("exec", name, "--", "cat", "/proc/1/task/1/children").split()
    return Struck(faults.signal_process(scene.pods()[name], "STOP", int(children[0])), name, replaced=True)


def delete_gently(scene: Scene) -> Struck:
    """Delete a pod with its whole grace period."""
    name = scene.plain()
    return Struck(faults.delete_pod(scene.stage.kubectl, name, GRACE_SECONDS), name, replaced=True)


def force_all(scene: Scene) -> Struck:
    """Take all pods out of the API at once."""
    return Struck(faults.force_delete_pod(scene.stage.kubectl, f"--selector={JOB_LABEL}={scene.stage.name}"))


@dataclass(frozen=True)
class Fault:
    """What is done, and what is told of it."""

    strike: Callable[[Scene], Struck]
    counted: bool = False
    reason: str = "Regrouping"
    """Of the event."""
    words: str = ""
    """In status.elastic.lastRestart, where the restart is counted."""


FAULTS = [
    pytest.param(Fault(cells.kill_worker, True, "WorkerFailed", "exited with code 137"), id="a worker is killed"),
    pytest.param(Fault(cells.stop_worker, True, "WorkersHang", "hangs at step"), id="a worker hangs"),
    pytest.param(Fault(kill_launcher), id="an agent is killed"),
    pytest.param(Fault(cells.delete_pod), id="a pod is deleted"),
    pytest.param(Fault(cells.force_plain), id="a pod is force-deleted"),
    pytest.param(Fault(cells.force_rank_0), id="the pod of rank 0, which keeps the store, is force-deleted"),
    pytest.param(Fault(force_all), id="all pods are force-deleted at once"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_training_goes_on_after(drama: Drama, fault: Fault) -> None:
    act = drama.act()
    struck = fault.strike(act.scene)
    group = drama.recovered(act, struck, counted=int(fault.counted))
    drama.no_container_restarted(act)
    drama.shown(lambda status: (status["members"], status["worldSize"]) == (WORKERS, WORKERS))
    (count,) = group.restarts
    drama.shown(lambda status: status.get("restarts", 0) == count)
    if fault.counted:
        told = elastic.elastic(drama.kubectl, drama.job)["lastRestart"]
        assert (told["reason"], fault.words in told["message"]) == (fault.reason, True), told
        assert struck.pod in told["message"]
    until(lambda: fault.reason in elastic.events(drama.kubectl, drama.job), 30)


def test_a_container_whose_first_process_is_killed_is_started_again_alone(drama: Drama) -> None:
    act = drama.act()
    struck = cells.kill_agent(act.scene)
    drama.recovered(act, struck)
    drama.no_container_restarted(act, but=struck.pod)


@pytest.mark.long
def test_the_pod_of_a_frozen_agent_is_replaced(drama: Drama) -> None:
    act = drama.act()
    struck = freeze_launcher(act.scene)
    before = act.scene.pods()[struck.pod]["metadata"]["uid"]
    restarts = drama.kubectl.job(drama.job)["status"].get("restarts", 0)
    drama.recovered(act, struck, size=WORKERS - 1)
    until(lambda: before not in {pod["metadata"]["uid"] for pod in drama.kubectl.pods(drama.job)}, 150)
    drama.recovered(act, struck)
    drama.no_container_restarted(act, but=struck.pod)
    # Not by its event: this job has had so many that Kubernetes' limit for one object holds further ones back.
    until(lambda: drama.kubectl.job(drama.job)["status"]["restarts"] == restarts + 1, 30)


def test_a_pod_that_is_told_to_go_costs_no_step_and_says_that_it_went(drama: Drama) -> None:
    act = drama.act()
    name = act.scene.plain()
    struck = Struck(faults.signal_process(act.scene.pods()[name], "TERM"), name)
    drama.recovered(act, struck, size=LEAST)
    drama.recovered(act, struck)
    drama.no_container_restarted(act, but=name)
    drama.lost_nothing(act, struck)
    last = termination(drama.kubectl.get("pod", name))
    assert last["exitCode"] == 143
    assert json.loads(last["message"])["reason"] == "Drained"


def test_fewer_and_then_more_workers_cost_no_step_and_no_container(drama: Drama) -> None:
    act = drama.act()
    scale = ("scale", "pytorchjob", drama.job)
    struck = Struck(time.time())
    drama.kubectl(*scale, f"--replicas={LEAST}")
    drama.recovered(act, struck, size=LEAST)
    until(lambda: len(drama.kubectl.pods(drama.job)) == LEAST, 60)
    drama.shown(lambda status: (status["members"], status["worldSize"]) == (LEAST, LEAST))
    drama.kubectl(*scale, f"--replicas={WORKERS}")
    drama.recovered(act, Struck(0.0))
    drama.no_container_restarted(act)
    drama.lost_nothing(act, struck)
    drama.shown(lambda status: (status["members"], status["worldSize"]) == (WORKERS, WORKERS))


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(cells.kill_worker, True, "WorkerFailed", "exited with code 137"), id="a worker is killed"),
        pytest.param(Fault(cells.stop_worker, True, "WorkersHang", "hangs at step"), id="a worker hangs"),
        pytest.param(Fault(delete_gently), id="a pod is deleted"),
        pytest.param(Fault(cells.force_rank_0), id="the pod of rank 0 is force-deleted"),
    ],
)
def test_a_command_of_v1_goes_on_with_the_agent_after(unchanged: Drama, fault: Fault) -> None:
    act = unchanged.act()
    (pod, *_) = act.scene.pods().values()
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["pytorchjob-agent-install"]
    struck = fault.strike(act.scene)
    group = unchanged.recovered(act, struck, counted=int(fault.counted))
    unchanged.no_container_restarted(act)
    (count,) = group.restarts
    unchanged.shown(lambda status: (status["members"], status.get("restarts", 0)) == (WORKERS, count))
    if fault.strike is delete_gently:
        unchanged.lost_nothing(act, struck)  # below a shell too, which keeps SIGTERM to itself
    if fault.counted:
        assert fault.words in elastic.elastic(unchanged.kubectl, unchanged.job)["lastRestart"]["message"]
