"""The faults that are measured: whom each one hits, and what must be true again afterwards."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.recovery.contenders import LEAST, WORKERS, Contender
from benchmarks.recovery.lines import Group
from benchmarks.recovery.stage import Stage
from e2e import faults

Undo = Callable[[], None]


@dataclass(frozen=True)
class Scene:
    """What a fault may look at."""

    stage: Stage
    contender: Contender
    group: Group

    def pod_of(self, rank: int) -> faults.Pod:
        """The pod that has a rank."""
        return self.pods()[self.group.pods[rank]]

    def pods(self) -> dict[str, faults.Pod]:
        """The job's pods by name."""
        return faults.pods_by_name(self.stage.kubectl, self.stage.name)

    def host(self) -> str:
        """The name of the pod that holds the store."""
        return f"{self.stage.name}-worker-0" if self.contender.first_is_host() else self.group.pods[0]

    def plain(self) -> str:
        """The name of some pod that neither has rank 0 nor holds the store."""
        special = {self.host(), self.group.pods[0]}
        return random.choice([name for name in self._training() if name not in special])

    def _training(self) -> list[str]:
        return [self.group.pods[rank] for rank in self.ranks()]

    def ranks(self) -> list[int]:
        """The ranks that train."""
        return sorted(self.group.present)

    def away_from_the_leader(self) -> faults.Pod:
        """Such a pod on a node that the operator's leader is not on, if there is one."""
        taken = self.node_of_the_leader()
        pods = [self.pods()[name] for name in self._training() if name not in {self.host(), self.group.pods[0]}]
        free = [pod for pod in pods if pod["spec"]["nodeName"] != taken]
        return random.choice(free or pods)

    def beside_the_leader(self) -> faults.Pod:
        """The pod on the node that the operator's leader is on."""
        node = self.node_of_the_leader()
        return next(pod for pod in self.pods().values() if pod["spec"]["nodeName"] == node)

    def node_of_the_leader(self) -> str:
        """The node that the operator's leader is on; empty while the operator has no leader."""
        leader = faults.leader(self.stage.operator)
        return str(self.stage.operator.get("pod", leader)["spec"]["nodeName"]) if leader else ""


@dataclass(frozen=True)
class Struck:
    """When it happened and to whom."""

    time: float
    pod: str = ""
    replaced: bool = False
    """Whether the pod, or its container, has to start anew."""
    undo: Undo = lambda: None


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    name: str
    what: str
    strike: Callable[[Scene], Struck]
    size: int = WORKERS
    """With how many workers the job has to train again."""
    limit: float = 180.0
    """Seconds after which it counts as not recovered."""
    fresh: bool = False
    """Whether it leaves a job behind with which no other repetition can be made."""
    disturbs: bool = True
    """Whether the processes have to come together again; otherwise the longest gap between steps is what it cost."""


def kill_worker(scene: Scene) -> Struck:
    rank = random.choice(scene.ranks())
    when = faults.signal_process(scene.pod_of(rank), "KILL", scene.group.pids[rank])
    return Struck(when, scene.group.pods[rank])


def stop_worker(scene: Scene) -> Struck:
    rank = random.choice(scene.ranks())
    when = faults.signal_process(scene.pod_of(rank), "STOP", scene.group.pids[rank])
    return Struck(when, scene.group.pods[rank])


def kill_agent(scene: Scene) -> Struck:
    name = scene.plain()
    return Struck(faults.signal_process(scene.pods()[name]), name, replaced=True)


def kill_agent_of_host(scene: Scene) -> Struck:
    name = scene.host()
    return Struck(faults.signal_process(scene.pods()[name]), name, replaced=True)


def delete_pod(scene: Scene) -> Struck:
    name = scene.plain()
    return Struck(faults.delete_pod(scene.stage.kubectl, name, 5), name, replaced=True)


def delete_rank_0(scene: Scene) -> Struck:
    name = scene.group.pods[0]
    return Struck(faults.delete_pod(scene.stage.kubectl, name, 5), name, replaced=True)


def _force(scene: Scene, name: str) -> Struck:
    return Struck(faults.force_delete_pod(scene.stage.kubectl, name), name, replaced=True)


def force_plain(scene: Scene) -> Struck:
    return _force(scene, scene.plain())


def force_rank_0(scene: Scene) -> Struck:
    return _force(scene, scene.group.pods[0])


def force_host(scene: Scene) -> Struck:
    return _force(scene, scene.host())


def shrink(scene: Scene) -> Struck:
    kubectl, job = scene.stage.kubectl, scene.stage.name
    when = faults.scale(kubectl, job, LEAST)
    return Struck(when, f"{job}-worker-{LEAST}", undo=lambda: None)


def grow(scene: Scene) -> Struck:
    kubectl, job = scene.stage.kubectl, scene.stage.name
    return Struck(faults.scale(kubectl, job, WORKERS), f"{job}-worker-{LEAST}", replaced=True)


def pause_node(scene: Scene) -> Struck:
    pod = scene.away_from_the_leader()
    node = pod["spec"]["nodeName"]
    return Struck(faults.pause_node(node), pod["metadata"]["name"], undo=lambda: faults.resume_node(node))


def cut_node(scene: Scene) -> Struck:
    pod = scene.away_from_the_leader()
    node = pod["spec"]["nodeName"]
    return Struck(faults.cut_node(node), pod["metadata"]["name"], undo=lambda: faults.mend_node(node))


def kill_node(scene: Scene) -> Struck:
    return _kill_node(scene, scene.away_from_the_leader())


def kill_node_of_leader(scene: Scene) -> Struck:
    return _kill_node(scene, scene.beside_the_leader())


def _kill_node(scene: Scene, pod: faults.Pod) -> Struck:
    node, kubectl = pod["spec"]["nodeName"], scene.stage.kubectl
    return Struck(faults.kill_node(node), pod["metadata"]["name"], undo=lambda: faults.start_node(kubectl, node))


def kill_operator(scene: Scene) -> Struck:
    return Struck(faults.kill_operator(scene.stage.operator))


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("worker-killed", "worker process killed (SIGKILL)", kill_worker),
        Fault("agent-killed", "agent (first process of a container) killed", kill_agent, fresh=True),
        Fault("host-agent-killed", "agent killed where the store is", kill_agent_of_host, fresh=True),
        Fault("pod-deleted", "pod deleted (grace 5 s)", delete_pod),
        Fault("pod-forced", "pod force-deleted", force_plain),
        Fault("rank-0-deleted", "rank 0's pod deleted (grace 5 s)", delete_rank_0),
        Fault("rank-0-forced", "rank 0's pod force-deleted", force_rank_0),
        Fault("host-forced", "the store's pod force-deleted", force_host),
        Fault("shrink", "scaled from 3 to 2", shrink, size=LEAST),
        Fault("grow", "scaled from 2 to 3", grow),
        Fault("worker-frozen", "worker process frozen (SIGSTOP)", stop_worker, limit=120.0),
        Fault("node-frozen", "node frozen (docker pause), elastic", pause_node, size=LEAST, limit=120.0, fresh=True),
        Fault("node-cut", "node cut off, elastic", cut_node, size=LEAST, limit=120.0, fresh=True),
        Fault("node-killed", "node killed, elastic", kill_node, size=LEAST, limit=120.0, fresh=True),
        Fault("operator-killed", "operator killed (longest gap between steps)", kill_operator, disturbs=False),
    )
}
