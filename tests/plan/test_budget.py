"""The restart budget is exact, and a suspension is no failure: whatever is cut off, lost, or seen late.

Here the cache lags as the real one does: each object is seen in the order of its versions, the job is read anew before
its children are touched, and a process that dies forgets all but what is stored.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pytorchjob_operator.model import ConditionType, RestartPolicy
from pytorchjob_operator.observed import Pod, PodPhase
from tests.factories import make_job
from tests.plan.model_cluster import ModelCluster

ANY = st.integers(0, 10**6)
RETRIED = st.sampled_from([None, 128, 137, 255])
JOBS = st.builds(
    make_job,
    workers=st.integers(1, 3),
    restart=st.sampled_from(["OnFailure", "ExitCode", "Never"]),
    runPolicy=st.sampled_from([{}, {}, {"backoffLimit": 0}, {"backoffLimit": 2}, {"backoffLimit": 9}]),
)


def cost(pods: dict[str, Pod]) -> int:
    """What these failed pods take out of the budget."""
    return sum(1 + pod.restarts for pod in pods.values())


class Budget(RuleBasedStateMachine):
    """Pods that fail, and an operator that is interrupted."""

    @initialize(job=JOBS)
    def start(self, job: Any) -> None:
        self.cluster = ModelCluster(job)
        self.cluster.confirms = True
        self.failed: dict[str, Pod] = {}
        self.suspensions = 0
        specs = job.spec.pytorch_replica_specs
        self.never = specs.master.restart_policy is RestartPolicy.NEVER
        self.limit = job.spec.run_policy.backoff_limit
        self.cluster.settle()

    def _running(self, number: int) -> str | None:
        found = sorted(pod.name for pod in self.cluster.pods.values() if pod.phase is PodPhase.RUNNING)
        return found[number % len(found)] if found else None

    def _replaced(self) -> dict[str, Pod]:
        """The failed pods that the operator deleted to make them again."""
        return {uid: pod for uid, (pod, reason) in self.cluster.deleted.items() if "failed and" in reason}

    @rule(cut=st.none() | st.integers(0, 6), sees_all=st.booleans())
    def the_operator_looks(self, cut: int | None, sees_all: bool) -> None:
        if sees_all:
            self.cluster.see()
        self.cluster.reconcile(cut)

    @rule(which=ANY)
    def one_pod_is_seen_as_it_is(self, which: int) -> None:
        names = sorted(self.cluster.history)
        if names:
            self.cluster.see_pod(names[which % len(names)], -1)

    @rule()
    def the_job_is_seen_as_it_is(self) -> None:
        self.cluster.see_job(-1)

    @rule()
    def the_kubelet_works(self) -> None:
        self.cluster.now += 1
        self.cluster.kubelet()

    @rule(which=ANY, code=RETRIED)
    def a_pod_fails(self, which: int, code: int | None) -> None:
        name = self._running(which)
        if name and not self.never:
            self.cluster.move(name, PodPhase.FAILED, code)
            self.failed[self.cluster.pods[name].uid] = self.cluster.pods[name]

    @rule(which=ANY, times=st.integers(1, 3))
    def containers_start_again(self, which: int, times: int) -> None:
        name = self._running(which)
        if name and not self.never:
            self.cluster.restart(name, times)

    @rule(wanted=st.booleans())
    def the_user_suspends_or_resumes(self, wanted: bool) -> None:
        self.cluster.now += 1
        self.suspensions += wanted
        self.cluster.suspend(wanted)

    @rule()
    def everything_settles(self) -> None:
        self.cluster.settle()
        status = self.cluster.job.status
        assert status.replacing is None
        if not (self.suspensions or self.cluster.ended()):
            assert (status.restarts or 0) == cost(self._replaced())

    @invariant()
    def each_replaced_pod_is_counted_once(self) -> None:
        restarts = self.cluster.job.status.restarts or 0
        assert cost(self._replaced()) <= restarts <= cost(self.failed)

    @invariant()
    def the_limit_is_never_used_up_by_pods_that_were_made_again(self) -> None:
        assert self.limit is None or (self.cluster.job.status.restarts or 0) < max(self.limit, 1)

    @invariant()
    def a_suspension_is_no_failure(self) -> None:
        assert not (self.never and self.cluster.job.status.holds(ConditionType.FAILED))

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.everything_settles()


def test_the_budget_is_exact() -> None:
    run_state_machine_as_test(Budget, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))
