"""Whatever happens, in whatever order it is seen: the invariants of a plan, over generated lives of a job."""

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pytorchjob_agent.contract.environment import ReplicaEnv
from pytorchjob_operator.coordinator_report import LastRestart, PhaseName, Report, TrainingEnd
from pytorchjob_operator.coordinator_update import Finish, Forget, Sync
from pytorchjob_operator.model import ConditionType, JobStatus, with_defaults
from pytorchjob_operator.names import ChildKind, ReplicaType
from pytorchjob_operator.observed import CoordinatorAccess, NodeHealth, Options, PodPhase
from pytorchjob_operator.plan import gang
from pytorchjob_operator.plan.environment.replica import build_env
from pytorchjob_operator.plan.writes import CreatePod
from tests.factories import make_job, replica
from tests.plan.model_cluster import NODES, ModelCluster

ELASTIC = {"minReplicas": 1, "maxReplicas": 4}
POLICIES = st.sampled_from([None, "Always", "OnFailure", "Never", "ExitCode"])
JOBS = st.builds(
    make_job,
    master=st.sampled_from([None, 1]),
    workers=st.integers(1, 4),
    restart=POLICIES,
    elasticPolicy=st.sampled_from([None, ELASTIC, {**ELASTIC, "metrics": []}]),
    nprocPerNode=st.sampled_from([None, "2"]),
    agent=st.sampled_from([None, {"reservePods": 1}, {"reservePods": 9}]),
    runPolicy=st.fixed_dictionaries(
        {},
        optional={
            "suspend": st.booleans(),
            "cleanPodPolicy": st.sampled_from(["None", "Running", "All"]),
            "backoffLimit": st.integers(0, 3),
            "activeDeadlineSeconds": st.sampled_from([0, 5, 60]),
            "ttlSecondsAfterFinished": st.sampled_from([0, 5]),
            "schedulingPolicy": st.sampled_from([{"gangScheduler": "volcano"}, {"gangScheduler": "batch"}]),
        },
    ),
)
ENDS = st.sampled_from([(PodPhase.SUCCEEDED, 0), (PodPhase.FAILED, 1), (PodPhase.FAILED, 137), (PodPhase.FAILED, None)])
DEATHS = st.sampled_from([NodeHealth.NOT_READY, NodeHealth.OUT_OF_SERVICE, NodeHealth.GONE])
ROUND = Report(round="1.1", phase=PhaseName.RUNNING, members=2, world=2)
REPORTS = st.sampled_from(
    [
        None,
        Report(),
        ROUND,
        replace(ROUND, round="1.2", restarts=1, last_restart=LastRestart(1.0, "WorkerFailed", "it fell")),
        replace(ROUND, phase=PhaseName.RENDEZVOUS, restarts=2, problems={"RendezvousWaiting": "1 of 2"}),
        replace(ROUND, phase=PhaseName.ENDED, ended=TrainingEnd("RestartsUsedUp", "it fell", 1)),
        replace(ROUND, phase=PhaseName.ENDED, ended=TrainingEnd("Succeeded", "", 0)),
    ]
)
OPTIONS = st.sampled_from([Options(), Options(coordinator=CoordinatorAccess("op:29600"))])
ANY = st.integers(0, 10**6)


def pod_env(write: CreatePod) -> dict[str, str]:
    """The env of the pod's container, as the process in it will find it."""
    env: list[dict[str, Any]] = write.body["spec"]["containers"][0]["env"]
    return {variable["name"]: variable["value"] for variable in env if "value" in variable}


def ended(status: JobStatus) -> bool:
    """Whether this is the last status of a job."""
    return status.holds(ConditionType.SUCCEEDED) or status.holds(ConditionType.FAILED)


class Lives(RuleBasedStateMachine):
    """A job, its user, its kubelet and its operator, none of which waits for another."""

    @initialize(job=JOBS, options=OPTIONS)
    def start(self, job: Any, options: Options) -> None:
        self.cluster = ModelCluster(job)
        self.cluster.options = options
        self.final: Any = None

    def _pick(self, number: int) -> str | None:
        names = sorted(self.cluster.pods)
        return names[number % len(names)] if names else None

    @rule(cut=st.none() | st.integers(0, 6))
    def the_operator_looks(self, cut: int | None) -> None:
        """It may die after any of its writes."""
        job = with_defaults(self.cluster.seen_job)
        plan = self.cluster.reconcile(cut)
        assert plan.reason
        assert not (plan.writes and plan.status and ended(plan.status))
        envs = [(ReplicaEnv.from_env(pod_env(write)), write) for write in plan.writes if isinstance(write, CreatePod)]
        for env, write in envs:
            assert env == build_env(job, replica(write.body["metadata"]["name"].removeprefix("x-")), Options())
        ranks = [env.rank for env, _ in envs if env.rank is not None]
        assert len(set(ranks)) == len(ranks)

    @rule()
    def the_cache_catches_up(self) -> None:
        self.cluster.see()

    @rule(which=ANY, version=ANY)
    def an_event_comes_late_or_twice(self, which: int, version: int) -> None:
        names = sorted(self.cluster.history)
        if names:
            self.cluster.see_pod(names[which % len(names)], version)

    @rule(version=ANY)
    def an_old_version_of_the_job_is_seen(self, version: int) -> None:
        self.cluster.see_job(version)

    @rule(seconds=st.floats(0, 10) | st.just(100.0))
    def time_goes_by(self, seconds: float) -> None:
        self.cluster.now += seconds

    @rule(which=ANY)
    def a_pod_starts(self, which: int) -> None:
        name = self._pick(which)
        if name and self.cluster.pods[name].phase is PodPhase.PENDING:
            self.cluster.move(name, PodPhase.RUNNING)

    @rule(which=ANY, end=ENDS)
    def a_pod_ends(self, which: int, end: tuple[PodPhase, int | None]) -> None:
        name = self._pick(which)
        if name and self.cluster.pods[name].phase is PodPhase.RUNNING:
            self.cluster.move(name, *end)

    @rule(which=ANY, force=st.booleans())
    def a_pod_is_deleted(self, which: int, force: bool) -> None:
        name = self._pick(which)
        if name:
            self.cluster.delete(name, force=force)

    @rule(which=ANY)
    def a_container_starts_again(self, which: int) -> None:
        name = self._pick(which)
        if name and self.cluster.pods[name].phase is PodPhase.RUNNING:
            self.cluster.restart(name)

    @rule(node=st.sampled_from(NODES), health=DEATHS)
    def a_node_dies(self, node: str, health: NodeHealth) -> None:
        self.cluster.lose(node, health)

    @rule(node=st.sampled_from(NODES))
    def a_node_is_cordoned(self, node: str) -> None:
        self.cluster.cordon(node)

    @rule()
    def the_nodes_are_back(self) -> None:
        self.cluster.bring_back()

    @rule()
    def the_kubelet_works(self) -> None:
        self.cluster.kubelet()

    @rule(phase=st.sampled_from(["", "Pending", "Inqueue", "Running"]))
    def volcano_judges_the_gang(self, phase: str) -> None:
        self.cluster.volcano(phase)

    @rule(report=REPORTS)
    def the_coordinator_tells(self, report: Report | None) -> None:
        self.cluster.report = report

    @rule(options=OPTIONS)
    def an_operator_with_or_without_a_coordinator_takes_over(self, options: Options) -> None:
        self.cluster.options = options

    @rule()
    def the_service_is_deleted(self) -> None:
        self.cluster.children.clear()

    @precondition(lambda self: self.cluster.job.spec.pytorch_replica_specs.worker is not None)
    @rule(workers=st.integers(1, 4))
    def the_user_scales(self, workers: int) -> None:
        self.cluster.scale(workers)

    @rule(wanted=st.booleans())
    def the_user_suspends_or_resumes(self, wanted: bool) -> None:
        self.cluster.suspend(wanted)

    @invariant()
    def only_a_job_that_has_ended_is_deleted(self) -> None:
        assert self.cluster.ended() or not self.cluster.gone

    @rule()
    def everything_settles(self) -> None:
        plan = self.cluster.settle()
        assert plan.empty
        assert plan.reason
        self._the_coordinator_knows_the_job()
        if not self.cluster.ended():
            suspended = self.cluster.job.spec.run_policy.suspend
            pods = {pod.name for pod in self.cluster.replicas()}
            assert pods == (set() if suspended else self.cluster.wanted() - self._too_late())
            self._reserves_stand_by()
            assert set(self.cluster.children) == (set() if suspended else self._kinds())
            assert self.cluster.job.status.holds(ConditionType.SUSPENDED) is suspended
            assert {pod.phase for pod in self.cluster.replicas()} <= {PodPhase.RUNNING, PodPhase.SUCCEEDED}
        else:
            assert not self.cluster.reserves()

    def _reserves_stand_by(self) -> None:
        """As many pods that may be lost have a reserve as the job asks for, and no other pod has one."""
        threatened = self.cluster.threatened()
        assert {pod.reserve_for for pod in self.cluster.reserves()} <= threatened
        assert len(self.cluster.reserves()) == min(len(threatened), self.cluster.most_reserves())

    def _the_coordinator_knows_the_job(self) -> None:
        """It expects the pods that train with it, or none."""
        update, pods = self.cluster.coordinator, self.cluster.replicas()
        if self.cluster.gone or self.cluster.job.spec.run_policy.suspend or not self.cluster.options.coordinator:
            assert update == Forget()
        elif self.cluster.ended():
            alive = [pod for pod in pods if pod.phase in (PodPhase.PENDING, PodPhase.RUNNING)]
            agents = [pod for pod in alive if not pod.without_coordinator]
            if not agents or not self._mixed():  # otherwise it depends on whether the other pods still take part
                assert isinstance(update, Finish if agents else Forget)
        elif self._mixed():
            assert update == Forget()
        else:
            assert isinstance(update, Sync)
            assert {pod.pod for pod in update.pods.values()} == {pod.name for pod in pods}

    def _mixed(self) -> bool:
        """Whether a pod was made without a coordinator."""
        return any(pod.without_coordinator for pod in self.cluster.replicas())

    def _too_late(self) -> set[str]:
        """Workers that an elastic job does not make again, because another has succeeded already."""
        elastic = self.cluster.job.spec.elastic_policy is not None
        succeeded = any(pod.succeeded for pod in self.cluster.pods.values() if pod.replica_type is ReplicaType.WORKER)
        missing = self.cluster.wanted() - set(self.cluster.pods)
        return {name for name in missing if "-worker-" in name} if elastic and succeeded else set()

    def _kinds(self) -> set[ChildKind]:
        """What a job that runs has besides its pods."""
        elastic = self.cluster.job.spec.elastic_policy
        scaled = {ChildKind.AUTOSCALER} if elastic is not None and elastic.metrics is not None else set()
        group = gang.kind(self.cluster.job, Options())
        return {ChildKind.SERVICE, *scaled, *([group] if group else [])}

    @invariant()
    def at_most_one_pod_is_in_each_place(self) -> None:
        places = [(pod.replica_type, pod.index, pod.reserve_for) for pod in self.cluster.pods.values()]
        assert len(set(places)) == len(places)

    @invariant()
    def a_job_that_has_ended_stays_as_it_is(self) -> None:
        if self.final is not None:
            assert self.cluster.job.status == self.final
        elif self.cluster.ended():
            self.final = self.cluster.job.status

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.everything_settles()


def test_any_life_keeps_the_invariants() -> None:
    run_state_machine_as_test(Lives, settings=settings(max_examples=80, stateful_step_count=30, deadline=None))


STATES = st.lists(
    st.tuples(ANY, st.sampled_from(["run", "end", "again", "delete", "vanish", "node", "cordon", "open"]), ENDS),
    max_size=6,
)
CORDON = st.tuples(ANY, st.just("cordon"), ENDS)
RESERVING = st.builds(
    make_job,
    workers=st.integers(1, 4),
    restart=st.sampled_from(["OnFailure", "ExitCode"]),
    agent=st.sampled_from([{"reservePods": 1}, {"reservePods": 9}]),
    runPolicy=st.fixed_dictionaries({}, optional={"cleanPodPolicy": st.sampled_from(["None", "Running", "All"])}),
)
"""Jobs whose pods may have reserve pods."""


@settings(deadline=None, max_examples=100)
@given(JOBS, STATES, st.tuples(st.none() | st.integers(1, 4), st.none() | st.booleans()), REPORTS, OPTIONS)
def test_a_plan_that_is_cut_anywhere_comes_to_the_same_end(
    job: Any, state: Any, edits: tuple[int | None, bool | None], report: Report | None, options: Options
) -> None:
    comes_to_the_same_end(job, state, edits, report, options)


@settings(deadline=None, max_examples=100)
@given(RESERVING, CORDON, STATES, st.tuples(st.none() | st.integers(1, 4), st.none() | st.booleans()))
def test_a_plan_about_reserve_pods_that_is_cut_anywhere_comes_to_the_same_end(
    job: Any, cordon: Any, state: Any, edits: tuple[int | None, bool | None]
) -> None:
    comes_to_the_same_end(job, [cordon, *state], edits, None, Options())


def comes_to_the_same_end(
    job: Any, state: Any, edits: tuple[int | None, bool | None], report: Report | None, options: Options
) -> None:
    """Each prefix of the plan after these disturbances leads to what the whole plan leads to."""
    workers, suspended = edits
    cluster = ModelCluster(job)
    cluster.options = options
    if state:
        cluster.settle()
    for number, what, end in state:
        disturb(cluster, number, what, end)
    if workers is not None and job.spec.pytorch_replica_specs.worker:
        cluster.scale(workers)
    if suspended is not None:
        cluster.suspend(suspended)
    cluster.report = report
    cluster.see()
    whole = copy.deepcopy(cluster)
    whole.settle()
    for cut in range(len(cluster.plan().writes) + 2):
        interrupted = copy.deepcopy(cluster)
        interrupted.reconcile(cut)
        interrupted.settle()
        assert interrupted.end() == whole.end()


def disturb(cluster: ModelCluster, number: int, what: str, end: tuple[PodPhase, int | None]) -> None:
    """One thing happens to one pod."""
    names = sorted(cluster.pods)
    if not names:
        return
    name = names[number % len(names)]
    if what == "run" and cluster.pods[name].phase is PodPhase.PENDING:
        cluster.move(name, PodPhase.RUNNING)
    elif what == "end" and cluster.pods[name].phase is PodPhase.RUNNING:
        cluster.move(name, *end)
    elif what == "again" and cluster.pods[name].phase is PodPhase.RUNNING:
        cluster.restart(name)
    elif what == "node":
        cluster.lose(cluster.pods[name].node or NODES[0], NodeHealth.NOT_READY)
    elif what == "cordon":
        cluster.cordon(cluster.pods[name].node or NODES[0])
        cluster.settle()
    elif what == "open":
        cluster.bring_back()
    elif what in ("delete", "vanish"):
        cluster.delete(name, force=what == "vanish")
