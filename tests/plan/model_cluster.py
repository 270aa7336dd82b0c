"""A Kubernetes small enough to think about: one job, its pods, a kubelet, and a watch cache that lags.

It keeps what the API server promises (one object per name, uid and resourceVersion preconditions) and nothing else:
what the planner sees may be old, missing or seen twice.
"""

from collections.abc import Mapping
from dataclasses import replace

from pytorchjob_operator import names
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Forget, Sync
from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob, RestartPolicy
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.node import Node
from pytorchjob_operator.observed import Child, NodeHealth, NodeState, Observed, Options, Pod, PodPhase, ReportedEvent
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.replicas import wanted
from pytorchjob_operator.plan.writes import (
    CreateChild,
    CreatePod,
    CreateReserve,
    DeleteChild,
    DeleteJob,
    DeletePod,
    Event,
    UpdateChild,
    Write,
)
from tests.factories import JOB_UID, at

_MOST_ROUNDS = 30
"""A job that needs more looks than this to settle would never settle."""
_GRACE = 10.0
NODES = ("node-0", "node-1", "node-2")


class ModelCluster:
    """The truth (`job`, `pods`, `children`), its whole history, and what the planner last saw of it."""

    def __init__(self, job: PyTorchJob) -> None:
        self.now = 0.0
        self.job = job
        self.pods: dict[str, Pod] = {}
        self.children: dict[ChildKind, Child] = {}
        self.gone = False
        self.confirms = False
        """Whether the operator reads the job itself before it touches its children, as the real one does."""
        self.history: dict[str, list[Pod | None]] = {}
        self.jobs = [job]
        self._seen_pods: dict[str, Pod] = {}
        self.seen_job = job
        self._seen_children: tuple[Child, ...] = ()
        self._versions = 0
        self._due: float | None = None
        self._reported: frozenset[ReportedEvent] = frozenset()
        self.report: Report | None = None
        """What the coordinator reports now."""
        self.options = Options()
        self.coordinator: CoordinatorUpdate | None = None
        """What the coordinator knows of the job."""
        self.refused: list[Write] = []
        self.deleted: dict[str, tuple[Pod, str]] = {}
        self.events: list[Event] = []
        self.dead: dict[str, NodeState] = {}
        """The nodes that no kubelet works on."""
        self.cordoned: set[str] = set()
        """The nodes that get no new pods."""
        self._reserved: Mapping[str, str] = {}
        self._avoided: dict[str, str] = {}
        """The node that a reserve pod must not run on, by the pod's name."""

    # What the API server does.

    def apply(self, write: Write) -> bool:
        """Carry out one write; False when a precondition refused it (404, 409)."""
        match write:
            case CreateChild(kind, body):
                meta = {**body["metadata"], "uid": f"uid-{self._next()}"}
                return self.children.setdefault(kind, child := Child.from_api(kind, {"metadata": meta})) is child
            case UpdateChild(kind, uid, body):
                return self._update(kind, uid, Child.from_api(kind, dict(body)))
            case CreatePod() | CreateReserve():
                return self._create(write)
            case DeletePod():
                pod = self.pods.get(write.name)
                assert not write.force or pod is None or pod.uid != write.uid or pod.node in self.dead
                done = self.delete(write.name, uid=write.uid, force=write.force)
                if done and pod is not None:
                    self.deleted.setdefault(pod.uid, (pod, write.reason))
                return done
            case DeleteChild(kind, _, uid):
                there = kind in self.children and self.children[kind].uid == uid
                return there and bool(self.children.pop(kind))
            case DeleteJob():
                return self._delete_job()

    def _create(self, write: CreatePod | CreateReserve) -> bool:
        name = write.body["metadata"]["name"]
        if name in self.pods:
            return False
        made_at = at(int(self.now)).isoformat()
        meta = {**write.body["metadata"], "uid": f"uid-{self._next()}", "creationTimestamp": made_at}
        if isinstance(write, CreateReserve):
            affinity = write.body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            self._avoided[name] = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        self._put(Pod.from_api({"metadata": meta, "spec": write.body["spec"]}))
        if self.gone:
            self.remove(name)
        return True

    def _update(self, kind: ChildKind, uid: str, new: Child) -> bool:
        old = self.children.get(kind)
        if old is None or old.uid != uid:
            return False
        self.children[kind] = replace(old, spec_hash=new.spec_hash)
        return True

    def _delete_job(self) -> bool:
        """The job goes, and the garbage collector takes its children."""
        there, self.gone = not self.gone, True
        self.children.clear()
        for name in list(self.pods):
            self.remove(name)
        return there

    def delete(self, name: str, *, uid: str | None = None, force: bool = False) -> bool:
        """Delete a pod: one that has run is seen to go first."""
        pod = self.pods.get(name)
        if pod is None or (uid is not None and pod.uid != uid):
            return False
        if pod.phase is not PodPhase.PENDING and not force:
            self._put(replace(pod, deleting=True, deleted_at=pod.deleted_at or at(self.now + _GRACE)))
        else:
            self.remove(name)
        return True

    def patch_status(self, status: JobStatus, seen: PyTorchJob) -> bool:
        """Write the status, unless somebody wrote the job since it was seen."""
        if self.gone or seen.metadata.resource_version != self.job.metadata.resource_version:
            return False
        stored = JobStatus.model_validate(status.to_api())
        self._put_job(self.job.model_copy(update={"status": stored}))
        return True

    def scale(self, workers: int) -> None:
        """The user changes spec.pytorchReplicaSpecs.Worker.replicas."""
        specs = self.job.spec.pytorch_replica_specs
        worker = specs.worker and specs.worker.model_copy(update={"replicas": workers})
        self._edit(pytorch_replica_specs=specs.model_copy(update={"worker": worker}))

    def suspend(self, wanted: bool) -> None:
        """The user, or Kueue, changes spec.runPolicy.suspend."""
        self._edit(run_policy=self.job.spec.run_policy.model_copy(update={"suspend": wanted}))

    def _edit(self, **spec: object) -> None:
        meta = self.job.metadata.model_copy(update={"generation": self.job.metadata.generation + 1})
        self._put_job(self.job.model_copy(update={"spec": self.job.spec.model_copy(update=spec), "metadata": meta}))

    # What the kubelet does.

    def move(self, name: str, phase: PodPhase, exit_code: int | None = None) -> None:
        """A pod reaches a phase, on a node that takes pods when it starts; without one it stays as it is."""
        pod = self.pods[name]
        closed = {*self.dead, *self.cordoned, self._avoided.get(name)}
        open_nodes = [node for node in NODES if node not in closed]
        if not (pod.node or open_nodes):
            return
        node = pod.node or open_nodes[pod.resource_version % len(open_nodes)]
        self._put(replace(pod, phase=phase, exit_code=exit_code, node=node))

    def restart(self, name: str, times: int = 1) -> None:
        """Its containers fail and are started again."""
        self._put(replace(self.pods[name], restarts=self.pods[name].restarts + times))

    def remove(self, name: str) -> None:
        """A pod is gone."""
        del self.pods[name]
        self.history[name].append(None)

    def kubelet(self) -> bool:
        """Start what is pending, end what is being deleted; a pod on a dead node is marked as deleted and stays."""
        changed = False
        for pod in list(self.pods.values()):
            if pod.node in self.dead:
                if pod.deleting:
                    continue
                self.delete(pod.name)
            elif pod.deleting:
                self.remove(pod.name)
            elif pod.phase is PodPhase.PENDING:
                self.move(pod.name, PodPhase.RUNNING)
                if self.pods[pod.name] is pod:
                    continue
            else:
                continue
            changed = True
        return changed

    def volcano(self, phase: str = "Inqueue") -> bool:
        """The gang scheduler judges the PodGroup, if it is its own; returns whether that is a change."""
        group = self.children.get(ChildKind.VOLCANO_POD_GROUP)
        if group is None or group.phase == phase:
            return False
        self.children[group.kind] = replace(group, phase=phase)
        return True

    def lose(self, node: str, health: NodeHealth) -> None:
        """A node dies, unless it is the last one."""
        if len({*self.dead, *self.cordoned, node}) < len(NODES):
            self.dead.setdefault(node, NodeState(health, at(self.now)))

    def bring_back(self) -> None:
        """All nodes are well again, and open."""
        self.dead.clear()
        self.cordoned.clear()

    def cordon(self, node: str) -> None:
        """A node gets no new pods, unless it is the last one that does."""
        if len({*self.dead, *self.cordoned, node}) < len(NODES):
            self.cordoned.add(node)

    # What the planner sees and does.

    def see(self) -> None:
        """The cache has caught up."""
        self._seen_pods, self.seen_job = dict(self.pods), self.job
        self._seen_children = tuple(self.children.values())

    def see_pod(self, name: str, version: int) -> None:
        """One event of a pod's whole history comes: the newest, a late one, or one for the second time."""
        past = self.history[name]
        pod = past[version % len(past)]
        if pod is None:
            self._seen_pods.pop(name, None)
        else:
            self._seen_pods[name] = pod

    def see_job(self, version: int) -> None:
        """One version of the job's whole history."""
        self.seen_job = self.jobs[version % len(self.jobs)]

    def plan(self) -> Plan:
        """What the planner decides about what it sees."""
        due = None if self._due is None else at(self._due)
        seen = tuple(self._seen_pods.values())
        observed = Observed(self.seen_job, at(self.now), seen, self._seen_children, status_due=due)
        observed = replace(observed, reported=self._reported, report=self.report, options=self.options)
        marked = {node: Node(node, node, 1, cordoned=True) for node in self.cordoned}
        observed = replace(observed, marked=marked, reserved=self._reserved)
        plan = make_plan(observed)
        asked = {name: self.dead.get(name, NodeState(NodeHealth.READY)) for name in plan.nodes}
        return make_plan(replace(observed, nodes=asked)) if asked else plan

    def reconcile(self, cut: int | None = None) -> Plan:
        """Plan and apply; the process dies after `cut` writes, of which the status is the last."""
        plan = self.plan()
        if self.confirms and plan.writes and self.seen_job != self.job:
            return plan
        self.coordinator = plan.coordinator
        self._reserved = plan.reserved
        self.refused = [write for write in plan.writes[:cut] if not self.apply(write)]
        whole = cut is None or cut > len(plan.writes)
        if whole and (plan.status is None or self.patch_status(plan.status, self.seen_job)):
            self.events += [*plan.pod_events, *plan.events]
            self._reported = plan.reported
        self._due = None if plan.status_due is None else (plan.status_due - at(0)).total_seconds()
        return plan

    def settle(self) -> Plan:
        """Everything catches up; returns the last plan, which must have nothing to do."""
        for _ in range(_MOST_ROUNDS):
            if self.gone:
                self.coordinator = Forget()
                return Plan(reason="the job is gone")
            self.see()
            plan = self.reconcile()
            assert not self.refused, "whoever sees all writes nothing that is refused"
            moved = self.volcano() | self.kubelet()
            quiet = plan.empty and not moved
            if quiet and plan.wake_at is None:
                return plan
            later = plan.wake_at if quiet or self._due is not None else None
            self.now = self.now + 1 if later is None else (later - at(0)).total_seconds()
        raise AssertionError(f"it does not settle: {plan.reason}")

    # What a test asks.

    def ended(self) -> bool:
        """Whether the job's status says that it has ended."""
        return any(self.job.status.holds(kind) for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED))

    def wanted(self) -> set[str]:
        """The names of the pods that the job wants."""
        name = self.job.metadata.name
        return {names.pod_name(name, replica.type, replica.index) for replica in wanted(self.job)}

    def replicas(self) -> list[Pod]:
        """The pods that are replicas of the job."""
        return [pod for pod in self.pods.values() if not pod.reserve_for]

    def reserves(self) -> list[Pod]:
        """The reserve pods."""
        return [pod for pod in self.pods.values() if pod.reserve_for]

    def threatened(self) -> set[str]:
        """The names of the replicas' pods on nodes that are cordoned, if they are replaced when they are lost."""
        specs = self.job.spec.pytorch_replica_specs
        kept = {role for role, spec in specs.items() if spec.restart_policy is not RestartPolicy.NEVER}
        return {
            pod.name for pod in self.replicas() if pod.active and pod.node in self.cordoned and pod.replica_type in kept
        }

    def most_reserves(self) -> int:
        """How many reserve pods the job may have; none with a gang scheduler."""
        agent = self.job.spec.agent
        return 0 if self.job.spec.run_policy.scheduling_policy or agent is None else agent.reserve_pods or 0

    def conditions(self) -> list[str]:
        """`Running=False PyTorchJobSuspended` and so on, in their order."""
        return [f"{condition.type}={condition.status} {condition.reason}" for condition in self.job.status.conditions]

    def end(self) -> tuple[object, ...]:
        """What is left, without its times and uids."""
        status = self.job.status
        return set(self.pods), set(self.children), self.gone, self.conditions(), status.restarts, self.known_pods()

    def known_pods(self) -> object:
        """What the coordinator knows of the job; of pods that it expects, the names."""
        update = self.coordinator
        if isinstance(update, Sync):
            return update.policy, {pod.pod for pod in update.pods.values()}
        return update

    def _put(self, pod: Pod) -> None:
        new = replace(pod, resource_version=self._next(), owner_uid=JOB_UID)
        self.pods[pod.name] = new
        self.history.setdefault(pod.name, []).append(new)

    def _put_job(self, job: PyTorchJob) -> None:
        meta = job.metadata.model_copy(update={"resource_version": str(self._next())})
        self.job = job.model_copy(update={"metadata": meta})
        self.jobs.append(self.job)

    def _next(self) -> int:
        self._versions += 1
        return self._versions
