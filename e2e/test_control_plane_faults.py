"""What trains needs no control plane: operator, API server and nodes go away, and the training's own lines go on.

One job lives through all of it; each test leaves it training with all of its workers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.recovery import cells
from benchmarks.recovery.cells import Scene, Struck
from benchmarks.recovery.contenders import LEAST, WORKERS
from benchmarks.recovery.stage import stage_in
from e2e import elastic, faults
from e2e.conftest import RELEASE, fresh_namespace
from e2e.drama import WARM, Act, Drama, by_members, degraded
from e2e.kubectl import Kubectl, until
from pytorchjob_operator.settings import Settings

pytestmark = [pytest.mark.alone, pytest.mark.skipif(not faults.on_kind(), reason="strikes nodes, which are containers")]
DEPLOYMENT = f"deployment/{RELEASE}"
PORT = Settings.coordinator_port
STEPS = 60


@pytest.fixture(scope="module")
def drama(operator: Kubectl) -> Iterator[Drama]:
    with fresh_namespace(operator) as kubectl, stage_in(kubectl, operator) as stage:
        yield Drama(stage, WARM)


@contextmanager
def away(operator: Kubectl) -> Iterator[None]:
    """There is no operator as long as this lasts."""
    count = operator.get(DEPLOYMENT)["spec"]["replicas"]
    operator("scale", DEPLOYMENT, "--replicas=0")
    try:
        faults.kill_operator(operator)
        until(lambda: not operator.get("pods")["items"], 60)
        yield
    finally:
        operator("scale", DEPLOYMENT, f"--replicas={count}")
        operator("rollout", "status", DEPLOYMENT, "--timeout=180s")


@contextmanager
def stopped_api_server(kubectl: Kubectl) -> Iterator[str]:
    """The API server answers nothing as long as this lasts; gives the node that it is on."""
    (node,) = kubectl.get("nodes", f"--selector={faults.CONTROL_PLANE}")["items"]
    name = node["metadata"]["name"]
    try:
        faults.docker("exec", name, "pkill", "-STOP", "-x", "kube-apiserver")
        yield name
    finally:
        faults.docker("exec", name, "pkill", "-CONT", "-x", "kube-apiserver")


@contextmanager
def no_way_to_the_coordinator(pod: faults.Pod) -> Iterator[None]:
    """One pod's packets to the coordinator are dropped as long as this lasts; all others go through."""
    node, address = pod["spec"]["nodeName"], pod["status"]["podIP"]
    rule = ("-s", address, "-p", "tcp", "--dport", str(PORT), "-j", "DROP")
    faults.docker("exec", node, "iptables", "--wait", "-I", "FORWARD", *rule)
    try:
        yield
    finally:
        faults.docker("exec", node, "iptables", "--wait", "-D", "FORWARD", *rule)


def trains(act: Act, pods: dict[str, faults.Pod], restarts: int) -> bool:
    """Whether every pod prints steps of a group with this restart count."""
    texts = [faults.printed(act.scene.stage.kubectl, pod) for pod in pods.values()]
    return all(
        any("event=step" in line and f" restarts={restarts} " in line for line in text.split("\n")) for text in texts
    )


def test_the_operator_is_killed_while_a_round_is_formed(drama: Drama, operator: Kubectl) -> None:
    act = drama.act()
    leader = operator.get("pod", faults.leader(operator))
    struck = cells.kill_worker(act.scene)
    faults.signal_process(leader, container="operator")
    drama.recovered(act, struck, counted=1)
    drama.no_container_restarted(act)
    operator("rollout", "status", DEPLOYMENT, "--timeout=180s")
    drama.shown(lambda status: (status["members"], status.get("restarts")) == (WORKERS, act.count + 1))


def test_the_operator_is_killed_while_all_is_well(drama: Drama, operator: Kubectl) -> None:
    act = drama.act()
    faults.kill_operator(operator)
    operator("rollout", "status", DEPLOYMENT, "--timeout=180s")
    drama.same_group(act, STEPS)


def test_without_an_operator_the_members_recover_by_themselves_and_it_takes_them_on_later(
    drama: Drama, operator: Kubectl
) -> None:
    act = drama.act()
    with away(operator):
        struck = cells.kill_worker(act.scene)
        drama.recovered(act, struck, counted=1)
    drama.no_container_restarted(act)
    drama.shown(lambda status: by_members(status["round"]) and status.get("restarts") == act.count + 1)
    drama.same_group(drama.act(), STEPS)
    drama.recovered(act := drama.act(), cells.kill_worker(act.scene), counted=1)


def test_an_operator_that_is_installed_anew_goes_on_with_later_rounds(drama: Drama, operator: Kubectl) -> None:
    act = drama.act()
    with away(operator):
        operator("delete", "lease", RELEASE)
        struck = cells.force_plain(act.scene)
    drama.recovered(act, struck)
    drama.no_container_restarted(act)


def test_without_an_api_server_workers_are_started_again(drama: Drama) -> None:
    act = drama.act()
    pods = act.scene.pods()
    with stopped_api_server(drama.kubectl):
        struck = Struck(faults.signal_process(pods[act.scene.group.pods[1]], pid=act.scene.group.pids[1]))
        until(lambda: trains(act, pods, act.count + 1), 75, lambda: "\n".join(map(str, pods)))
    until(lambda: "ok" in drama.kubectl("get", "--raw", "/readyz", check=False), 120)
    drama.recovered(act, struck, counted=1)
    drama.no_container_restarted(act)


def test_a_pod_that_does_not_reach_the_coordinator_is_named_and_trains_on(drama: Drama) -> None:
    act = drama.act()
    name = act.scene.plain()
    with no_way_to_the_coordinator(act.scene.pods()[name]):
        until(lambda: "CoordinatorUnreachable" in degraded(drama.kubectl, drama.job), 90)
        assert name in degraded(drama.kubectl, drama.job)["CoordinatorUnreachable"]
        drama.same_group(act, STEPS)
    until(lambda: not degraded(drama.kubectl, drama.job), 60, lambda: drama.kubectl.story(drama.job))
    drama.same_group(act, STEPS)


NODE_FAULTS = [
    pytest.param(cells.cut_node, id="is cut off"),
    pytest.param(cells.pause_node, id="freezes", marks=pytest.mark.long),
    pytest.param(cells.kill_node, id="is killed"),
    pytest.param(cells.kill_node_of_leader, id="is killed and had the operator's leader", marks=pytest.mark.long),
]


@pytest.mark.parametrize("strike", NODE_FAULTS)
def test_the_others_train_on_without_a_node_that(drama: Drama, strike: Callable[[Scene], Struck]) -> None:
    act = drama.act()
    struck = strike(act.scene)
    try:
        drama.recovered(act, struck, size=LEAST)
        drama.shown(lambda status: status["members"] == LEAST)
    finally:
        struck.undo()
    back = drama.act()
    assert elastic.elastic(drama.kubectl, drama.job).get("restarts", 0) == back.count == act.count
    drama.no_container_restarted(act, but=struck.pod)
