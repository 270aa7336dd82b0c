"""Jobs in a queue of Kueue whose Workloads are the operator's: which pods exist when, and what Kueue is told.

Kueue is a few lines here that do what a person of these tests says; tests with the real one are in `tests/apiserver`.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob
from pytorchjob_operator.names import (
    ANNOTATION_SPEC_HASH,
    KUEUE_PREBUILT,
    LABEL_KUEUE_ORIGIN,
    LABEL_KUEUE_QUEUE,
    ChildKind,
)
from pytorchjob_operator.observed import Child, ClusterKind, ClusterObject, Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.writes import (
    CreateChild,
    CreatePod,
    DeleteChild,
    DeleteJob,
    DeletePod,
    ReportWorkload,
    UpdateChild,
)
from pytorchjob_operator.workload import Standing, Workload, reported
from tests.factories import at, make_job, make_service, make_template

QUEUE = {LABEL_KUEUE_QUEUE: "team-a"}
NEEDED, EXTRA_2, EXTRA_3 = "pytorchjob-x", "pytorchjob-x.worker-2", "pytorchjob-x.worker-3"
H100 = ClusterObject(ClusterKind.RESOURCE_FLAVOR, "h100")
DEFAULT_CLASS = ClusterObject(ClusterKind.PRIORITY_CLASS, "")
FLAVOR = {"spec": {"nodeLabels": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}}


def elastic(workers: int = 4, least: int = 2, **given: Any) -> PyTorchJob:
    """A job of workers alone that trains from so many on."""
    policy = {"minReplicas": least, "maxReplicas": 8}
    return make_job(master=None, workers=workers, elasticPolicy=policy, **{"meta": {"labels": QUEUE}, **given})


class Cluster:
    """A job, its pods and its Workloads; each pass of the operator sees them as they are."""

    def __init__(self, job: PyTorchJob, **options: Any) -> None:
        self.job, self.seconds = job, 0.0
        self.options = Options(kueue=True, **options)
        self.workloads: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.bodies: dict[str, dict[str, Any]] = {}
        self.cluster: dict[ClusterObject, dict[str, Any] | None] = {H100: FLAVOR, DEFAULT_CLASS: None}
        self.unserved: dict[ChildKind, str] = {}
        self.others: dict[str, Child] = {}
        """The Service, and Workloads of Kueue."""
        self._due: datetime | None = None
        self.leaves = True
        """Whether pods that are deleted end at once."""
        self._numbers = iter(range(1, 1_000_000))

    def plan(self) -> Plan:
        kept = (Child.from_api(ChildKind.WORKLOAD, each) for each in self.workloads.values())
        children = () if ChildKind.WORKLOAD in self.unserved else tuple(kept)
        return make_plan(
            Observed(
                self.job,
                at(self.seconds),
                tuple(self.pods.values()),
                (*children, *self.others.values()),
                unserved=self.unserved,
                status_due=self._due,
                options=self.options,
                cluster=self.cluster,
            )
        )

    def settle(self, most: int = 1000) -> "Cluster":
        """Let the operator work until nothing is left to write; at most so many writes."""
        for _ in range(40):
            self.seconds += 10
            plan = self.plan()
            self._due = plan.status_due
            for write in plan.writes:
                if not most:
                    return self
                most -= 1
                self._apply(write)
            if plan.status is not None:
                self.job = self.job.model_copy(update={"status": plan.status})
            elif not plan.writes and plan.status_due is None:
                return self
        raise AssertionError(f"it does not settle: {self.plan().writes}")

    def _apply(self, write: Any) -> None:
        match write:
            case CreateChild(ChildKind.WORKLOAD, body):
                assert body["metadata"]["name"] not in self.workloads
                meta = {**body["metadata"], "uid": f"w{next(self._numbers)}"}
                self.workloads[meta["name"]] = {**body, "metadata": meta}
            case UpdateChild(ChildKind.WORKLOAD, _, body):
                live = self.workloads[body["metadata"]["name"]]
                notes = {**live["metadata"]["annotations"], **body["metadata"]["annotations"]}
                meta = {**live["metadata"], "annotations": notes}
                live |= {"metadata": meta, "spec": {**live["spec"], **body["spec"]}}
            case ReportWorkload(name, _, report, when):
                self.workloads[name] = reported(self.workloads[name], report, when)
            case DeleteChild(ChildKind.WORKLOAD, name, _):
                del self.workloads[name]
            case CreatePod(body):
                meta = {**body["metadata"], "uid": f"p{next(self._numbers)}"}
                made = Pod.from_api({"metadata": meta, "spec": body["spec"], "status": {"phase": "Running"}})
                self.pods[made.name], self.bodies[made.name] = replace(made, ready=True), dict(body)
            case DeletePod(name, _, _):
                if self.leaves:
                    del self.pods[name]
                else:
                    self.pods[name] = replace(self.pods[name], deleting=True)
            case CreateChild(kind, body):
                self.others[kind] = make_service()
            case DeleteChild(kind, _, _):
                del self.others[kind]
            case _:
                raise AssertionError(write)

    # What Kueue does.

    def set(self, name: str, kind: str, status: bool = True, reason: str = "Because", message: str = "") -> None:
        found = self.workloads[name].setdefault("status", {})
        rest = [each for each in found.get("conditions", []) if each["type"] != kind]
        new = {"type": kind, "status": "True" if status else "False", "reason": reason, "message": message}
        found["conditions"] = [*rest, new]

    def admit(self, *names: str) -> "Cluster":
        for name in names:
            sets = self.workloads[name]["spec"]["podSets"]
            given = [{"name": each["name"], "flavors": {"cpu": "h100"}, "count": each["count"]} for each in sets]
            self.set(name, "Evicted", False)
            self.set(name, "QuotaReserved")
            self.set(name, "Admitted")
            self.workloads[name]["status"]["admission"] = {"clusterQueue": "c", "podSetAssignments": given}
        return self.settle()

    def evict(self, name: str, reason: str = "Preempted") -> "Cluster":
        self.set(name, "Evicted", True, reason, "to make room")
        return self.settle()

    def state(self, name: str) -> Workload:
        return Workload.from_api(self.workloads[name])

    def holds(self, kind: ConditionType) -> bool:
        return self.job.status.holds(kind)

    @property
    def waits(self) -> tuple[str, str] | None:
        found = self.job.status.condition(ConditionType.WAITING)
        return (str(found.reason), str(found.message)) if found else None


def test_a_job_waits_without_pods_until_it_is_admitted() -> None:
    found = Cluster(make_job(workers=2, meta={"labels": QUEUE})).settle()
    assert (sorted(found.workloads), found.pods) == ([NEEDED], {})
    [master, worker] = found.workloads[NEEDED]["spec"]["podSets"]
    assert [(each["name"], each["count"]) for each in (master, worker)] == [("master", 1), ("worker", 2)]
    assert found.workloads[NEEDED]["spec"]["queueName"] == "team-a"
    assert found.holds(ConditionType.SUSPENDED)
    assert found.waits == ("WaitsInQueue", "queue team-a: Kueue has not decided yet")
    found.admit(NEEDED)
    assert sorted(found.pods) == ["x-master-0", "x-worker-0", "x-worker-1"]
    assert (found.holds(ConditionType.RUNNING), found.waits) == (True, None)
    spec = found.bodies["x-worker-1"]["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"gpu": "h100"}, [{"key": "gpu", "operator": "Exists"}])
    assert found.state(NEEDED).ready is True


@pytest.mark.parametrize(
    ("status", "code", "message", "reason"),
    [
        (False, "Pending", "insufficient quota for cpu in flavor h100", "WaitsForQuota"),
        (False, "WaitingForQuota", "insufficient unused quota", "WaitsForQuota"),
        (False, "ExceedsMaxQuota", "request > maximum capacity", "ExceedsQuota"),
        (False, "NoMatchingFlavor", "flavor h100 doesn't match node affinity", "NoMatchingFlavor"),
        (False, "TopologyPlacementFailed", "topology allows to fit only 3 out of 4 pods", "WaitsForTopology"),
        (False, "Inadmissible", "LocalQueue team-a doesn't exist", "QueueMissing"),
        (False, "Misconfigured", "ClusterQueue team-a is inactive", "QueueMissing"),
        (False, "Suspended", "LocalQueue team-a is stopped", "QueueStopped"),
        (False, "PendingEvaluation", "", "WaitsInQueue"),
        (True, "QuotaReserved", "", "WaitsForAdmissionChecks"),
    ],
)
def test_the_job_says_what_kueue_says(status: bool, code: str, message: str, reason: str) -> None:
    found = Cluster(elastic()).settle()
    found.set(NEEDED, "QuotaReserved", status, code, message)
    found.settle()
    assert found.pods == {}
    assert found.waits is not None
    assert found.waits[0] == reason
    assert message in found.waits[1]


def test_a_job_with_quota_waits_for_checks_also_if_kueue_says_nothing() -> None:
    found = Cluster(elastic()).settle()
    found.set(NEEDED, "QuotaReserved")
    found.settle()
    assert found.waits == ("WaitsForAdmissionChecks", "queue team-a: admission checks are not ready")


def test_quota_is_given_back_once_the_pods_are_gone() -> None:
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE})).settle().admit(NEEDED)
    found.leaves = False
    found.evict(NEEDED)
    assert [pod.deleting for pod in found.pods.values()] == [True, True]
    assert found.state(NEEDED).standing is Standing.EVICTED
    found.pods.clear()
    found.settle()
    assert found.state(NEEDED).standing is Standing.QUEUED
    assert "admission" not in found.workloads[NEEDED]["status"]
    assert [
        each["status"] for each in found.workloads[NEEDED]["status"]["conditions"] if each["type"] == "Requeued"
    ] == ["True"]
    assert found.holds(ConditionType.SUSPENDED)
    assert (found.job.status.restarts or 0) == 0
    found.leaves = True
    found.admit(NEEDED)
    assert sorted(found.pods) == ["x-master-0", "x-worker-0"]


def test_an_elastic_job_starts_with_its_minimum_grows_and_shrinks() -> None:
    found = Cluster(elastic()).settle()
    assert sorted(found.workloads) == [NEEDED]
    found.admit(NEEDED)
    assert [found.workloads[name]["spec"]["priority"] for name in (NEEDED, EXTRA_2, EXTRA_3)] == [0, -1, -1]
    assert sorted(found.pods) == ["x-worker-0", "x-worker-1"]
    assert found.holds(ConditionType.RUNNING)
    found.admit(EXTRA_3)
    assert sorted(found.pods) == ["x-worker-0", "x-worker-1", "x-worker-3"]
    first = found.pods["x-worker-0"].uid
    found.leaves = False
    found.evict(EXTRA_3)
    assert [name for name, pod in found.pods.items() if pod.deleting] == ["x-worker-3"]
    assert found.state(EXTRA_3).reserved
    del found.pods["x-worker-3"]
    found.settle()
    assert not found.state(EXTRA_3).reserved
    assert found.pods["x-worker-0"].uid == first
    assert (found.holds(ConditionType.RUNNING), found.holds(ConditionType.SUSPENDED)) == (True, False)


def test_an_evicted_job_keeps_no_quota_for_further_workers() -> None:
    found = Cluster(elastic()).settle().admit(NEEDED).admit(EXTRA_2)
    found.leaves = False
    found.evict(NEEDED)
    assert all(pod.deleting for pod in found.pods.values())
    assert sorted(found.workloads) == [NEEDED, EXTRA_2], "its pod has its quota still"
    del found.pods["x-worker-2"]
    found.settle()
    assert sorted(found.workloads) == [NEEDED]
    assert found.state(NEEDED).reserved
    found.pods.clear()
    found.settle()
    assert not found.state(NEEDED).reserved


def test_a_job_that_is_scaled_has_other_workloads() -> None:
    found = Cluster(elastic(4)).settle().admit(NEEDED).admit(EXTRA_2, EXTRA_3)
    found.leaves = False
    found.job = elastic(3).model_copy(update={"status": found.job.status})
    found.settle()
    assert found.pods["x-worker-3"].deleting
    assert EXTRA_3 in found.workloads, "its pod has its quota still"
    del found.pods["x-worker-3"]
    found.settle()
    assert sorted(found.workloads) == [NEEDED, EXTRA_2]
    found.job = elastic(4).model_copy(update={"status": found.job.status})
    found.settle()
    assert sorted(found.workloads) == [NEEDED, EXTRA_2, EXTRA_3]
    assert len(found.pods) == 3


def test_a_fixed_job_of_another_size_queues_anew() -> None:
    small, large = (make_job(workers=count, meta={"labels": QUEUE}) for count in (1, 2))
    found = Cluster(small).settle().admit(NEEDED)
    before = found.workloads[NEEDED]["metadata"]["uid"]
    found.job = large.model_copy(update={"status": found.job.status})
    found.settle()
    assert found.pods == {}
    assert found.workloads[NEEDED]["metadata"]["uid"] != before
    found.admit(NEEDED)
    assert len(found.pods) == 3


def test_a_workload_of_another_version_keeps_its_quota() -> None:
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE})).settle().admit(NEEDED)
    notes = found.workloads[NEEDED]["metadata"]["annotations"]
    notes[ANNOTATION_SPEC_HASH] = notes[ANNOTATION_SPEC_HASH].partition("-")[0] + "-other"
    assert found.plan().writes == ()
    assert found.settle().holds(ConditionType.RUNNING)


def test_while_it_waits_a_workload_follows_the_job() -> None:
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE})).settle()
    uid = found.workloads[NEEDED]["metadata"]["uid"]
    other = make_job(workers=3, meta={"labels": {LABEL_KUEUE_QUEUE: "team-b"}})
    found.job = other.model_copy(update={"status": found.job.status})
    found.settle()
    assert found.workloads[NEEDED]["metadata"]["uid"] == uid
    assert found.workloads[NEEDED]["spec"]["queueName"] == "team-b"
    assert [each["count"] for each in found.workloads[NEEDED]["spec"]["podSets"]] == [1, 3]


def test_a_suspended_job_is_in_no_queue() -> None:
    found = Cluster(elastic()).settle().admit(NEEDED).admit(EXTRA_2)
    found.job = elastic(runPolicy={"suspend": True}).model_copy(update={"status": found.job.status})
    found.leaves = False
    found.settle()
    assert NEEDED in found.workloads
    assert EXTRA_3 not in found.workloads, "no pod has its quota"
    found.pods.clear()
    found.settle()
    assert found.workloads == {}
    found.leaves = True
    found.job = elastic().model_copy(update={"status": found.job.status})
    found.settle()
    assert sorted(found.workloads) == [NEEDED]


@pytest.mark.parametrize(("code", "reason"), [(0, "Succeeded"), (1, "Failed")])
def test_a_job_that_has_ended_needs_no_quota(code: int, reason: str) -> None:
    job = make_job(workers=1, restart="Never", meta={"labels": QUEUE})
    found = Cluster(job).settle().admit(NEEDED)
    phase = PodPhase.FAILED if code else PodPhase.SUCCEEDED
    found.pods = {name: replace(pod, phase=phase, exit_code=code) for name, pod in found.pods.items()}
    found.settle()
    assert found.state(NEEDED).standing is Standing.FINISHED
    [finished] = [each for each in found.workloads[NEEDED]["status"]["conditions"] if each["type"] == "Finished"]
    assert finished["reason"] == reason


def test_pods_that_have_succeeded_give_their_quota_back() -> None:
    found = Cluster(make_job(workers=3, meta={"labels": QUEUE})).settle().admit(NEEDED)
    ended = replace(found.pods["x-worker-1"], phase=PodPhase.SUCCEEDED, exit_code=0)
    found.pods["x-worker-1"] = ended
    found.settle()
    assert found.state(NEEDED).reclaimable == {"master": 0, "worker": 1}


def test_a_deleted_workload_stops_the_job_which_queues_anew() -> None:
    found = Cluster(elastic()).settle().admit(NEEDED).admit(EXTRA_2)
    del found.workloads[NEEDED]
    found.settle()
    assert found.pods == {}
    assert not found.state(NEEDED).reserved


def test_a_workload_that_somebody_holds_back_stops_the_job() -> None:
    found = Cluster(elastic()).settle().admit(NEEDED)
    found.workloads[NEEDED]["spec"]["active"] = False
    found.evict(NEEDED, "Deactivated")
    assert found.pods == {}
    assert found.waits is not None
    assert found.waits[0] == "HeldInQueue"


def test_kueues_own_integration_goes_first() -> None:
    body = {"metadata": {"name": "pytorchjob-x-abc12", "namespace": "ns", "uid": "u"}}
    theirs = Child.from_api(ChildKind.WORKLOAD, body)
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE}))
    found.others["theirs"] = theirs
    found.settle()
    assert (found.workloads, len(found.pods)) == ({}, 2)


@pytest.mark.parametrize("why", ["", "404 not found"])
def test_without_workloads_nothing_starts_and_what_runs_goes_on(why: str) -> None:
    found = Cluster(elastic())
    found.unserved = {ChildKind.WORKLOAD: why}
    found.settle()
    assert (found.pods, found.workloads) == ({}, {})
    assert found.waits is not None
    assert found.waits[0] == ("QueueUnavailable" if why else "WaitsInQueue")
    found.unserved = {}
    found.settle().admit(NEEDED).admit(EXTRA_2)
    found.unserved = {ChildKind.WORKLOAD: why}
    found.settle()
    assert sorted(found.pods) == ["x-worker-0", "x-worker-1", "x-worker-2"]


@pytest.mark.parametrize(
    ("labels", "spec", "asked", "reference"),
    [
        (
            {"kueue.x-k8s.io/priority-class": "high"},
            {},
            ClusterObject(ClusterKind.WORKLOAD_PRIORITY_CLASS, "high"),
            {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
        ),
        (
            {},
            {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}},
            ClusterObject(ClusterKind.PRIORITY_CLASS, "high"),
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
        ),
        (
            {},
            {"template": make_template(priorityClassName="high")},
            ClusterObject(ClusterKind.PRIORITY_CLASS, "high"),
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
        ),
    ],
)
def test_the_priority_comes_from_its_class(
    labels: dict[str, str], spec: dict[str, Any], asked: ClusterObject, reference: dict[str, str]
) -> None:
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE | labels}, **spec))
    assert found.plan().cluster == {asked}
    assert not [write for write in found.plan().writes if isinstance(write, CreateChild)]
    found.cluster[asked] = None
    found.settle()
    assert found.workloads == {}
    assert found.waits is not None
    assert found.waits[0] == "PriorityClassMissing"
    found.cluster[asked] = {"value": 1000}
    found.settle()
    assert found.workloads[NEEDED]["spec"]["priority"] == 1000
    assert found.workloads[NEEDED]["spec"]["priorityClassRef"] == reference


def test_without_a_class_the_priority_is_the_clusters_default() -> None:
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE}))
    del found.cluster[DEFAULT_CLASS]
    assert found.plan().cluster == {DEFAULT_CLASS}
    found.cluster[DEFAULT_CLASS] = {"metadata": {"name": "usual"}, "value": 7}
    found.settle()
    assert found.workloads[NEEDED]["spec"]["priority"] == 7
    assert found.workloads[NEEDED]["spec"]["priorityClassRef"]["name"] == "usual"


def test_no_pod_is_created_before_its_flavor_is_known() -> None:
    found = Cluster(make_job(workers=1, meta={"labels": QUEUE})).settle()
    del found.cluster[H100]
    found.admit(NEEDED)
    assert (found.plan().cluster, found.pods) == ({H100}, {})
    found.cluster[H100] = FLAVOR
    found.settle()
    assert len(found.pods) == 2


def test_pods_wait_for_their_place_in_a_topology() -> None:
    notes = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    template = {**make_template(), "metadata": {"annotations": notes}}
    found = Cluster(make_job(workers=1, template=template, meta={"labels": QUEUE})).settle()
    asked = found.workloads[NEEDED]["spec"]["podSets"][0]["topologyRequest"]
    assert asked == {"required": "rack", "podIndexLabel": "training.kubeflow.org/replica-index"}
    found.set(NEEDED, "QuotaReserved")
    found.set(NEEDED, "Admitted")
    given = [{"name": name, "topologyAssignment": {"levels": ["rack"]}} for name in ("master", "worker")]
    found.workloads[NEEDED]["status"]["admission"] = {"podSetAssignments": given}
    found.settle()
    body = found.bodies["x-worker-0"]
    assert body["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert body["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
    assert body["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == NEEDED


def handed_over(**given: Any) -> PyTorchJob:
    """A job that MultiKueue hands to another cluster."""
    return elastic(managedBy="kueue.x-k8s.io/multikueue", **given)


def copied(found: Cluster, kind: ConditionType, active: int = 0) -> None:
    """The status of the job in the other cluster, as MultiKueue copies it."""
    status = {"conditions": [{"type": kind, "status": "True"}], "replicaStatuses": {"Worker": {"active": active}}}
    found.job = found.job.model_copy(update={"status": JobStatus.model_validate(status)})
    found.settle()


def test_multikueue_hands_a_job_over_by_its_workload() -> None:
    found = Cluster(handed_over()).settle()
    assert (sorted(found.workloads), found.pods, found.others) == ([NEEDED], {}, {})
    assert [each["count"] for each in found.workloads[NEEDED]["spec"]["podSets"]] == [2]
    found.admit(NEEDED)
    assert (sorted(found.workloads), found.pods, found.others) == ([NEEDED], {}, {}), (
        "the pods are in the other cluster"
    )
    assert found.state(NEEDED).ready is None
    copied(found, ConditionType.RUNNING, active=2)
    assert found.state(NEEDED).ready is True
    copied(found, ConditionType.SUCCEEDED)
    assert found.state(NEEDED).standing is Standing.FINISHED


@pytest.mark.parametrize(
    ("reason", "active", "standing"),
    [
        ("Preempted", 2, Standing.EVICTED),
        ("Preempted", 0, Standing.QUEUED),
        ("AdmissionCheck", 2, Standing.QUEUED),
    ],
)
def test_quota_is_given_back_once_the_pods_in_the_other_cluster_are_gone(
    reason: str, active: int, standing: Standing
) -> None:
    found = Cluster(handed_over()).settle().admit(NEEDED)
    copied(found, ConditionType.RUNNING, active)
    found.evict(NEEDED, reason)
    assert found.state(NEEDED).standing is standing


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(handed_over(runPolicy={"suspend": True}), id="suspended"),
        pytest.param(handed_over(meta={"labels": {}}), id="in no queue"),
        pytest.param(elastic(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), id="by the field of v1"),
    ],
)
def test_a_job_that_is_in_no_queue_is_not_handed_over(job: PyTorchJob) -> None:
    found = Cluster(handed_over()).settle()
    found.job = job
    assert [type(write) for write in found.plan().writes] in ([], [DeleteChild])
    assert Cluster(job).settle().workloads == {}


def test_a_job_that_is_handed_over_follows_its_size_and_its_priority() -> None:
    found = Cluster(handed_over()).settle()
    found.job = handed_over(least=3)
    found.settle()
    assert found.workloads[NEEDED]["spec"]["podSets"][0]["count"] == 3
    first = found.admit(NEEDED).workloads[NEEDED]["metadata"]["uid"]
    found.job = handed_over(least=4)
    found.settle()
    assert found.workloads[NEEDED]["metadata"]["uid"] != first, "Kueue admits it anew, as it is now"


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_in_the_other_cluster_a_job_has_the_workload_that_was_made_for_it(where: str) -> None:
    meta = {"labels": QUEUE | {"kueue.x-k8s.io/priority-class": "not-here"}, "annotations": {}}
    meta[where] = meta[where] | {KUEUE_PREBUILT: "made-before"}
    found = Cluster(make_job(workers=1, meta=meta))
    found.cluster[ClusterObject(ClusterKind.WORKLOAD_PRIORITY_CLASS, "not-here")] = None  # the Workload has a priority
    [write] = [write for write in found.plan().writes if isinstance(write, CreateChild)]
    assert (write.body["metadata"]["name"], write.adopts) == ("made-before", True)
    found.settle().admit("made-before")
    assert sorted(found.pods) == ["x-master-0", "x-worker-0"]


def test_what_multikueue_has_made_has_no_ttl() -> None:
    ended = {"conditions": [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}
    for labels, deletes in ((QUEUE, True), (QUEUE | {LABEL_KUEUE_ORIGIN: "manager"}, False)):
        job = make_job(
            runPolicy={"ttlSecondsAfterFinished": 1},
            meta={"labels": labels},
            status=JobStatus.model_validate(ended),
        )
        assert any(isinstance(write, DeleteJob) for write in Cluster(job).plan().writes) is deletes


def _play(most: int) -> Cluster:
    """Admission, growth and eviction, with an operator that is killed after so many writes of each."""
    found = Cluster(elastic())
    found.settle(most)
    found.settle().admit(NEEDED)
    for act in (lambda: found.admit(EXTRA_2), lambda: found.evict(NEEDED), lambda: found.admit(NEEDED)):
        settle = found.settle
        found.settle = lambda limit=most, settle=settle: settle(limit)  # type: ignore[method-assign]
        act()
        found.settle = settle  # type: ignore[method-assign]
        found.settle()
    return found


@pytest.mark.parametrize("most", range(8))
def test_an_operator_that_is_killed_between_two_writes_comes_to_the_same_end(most: int) -> None:
    found, whole = _play(most), _play(1000)
    assert sorted(found.pods) == sorted(whole.pods)
    assert {name: found.state(name).standing for name in found.workloads} == {
        name: whole.state(name).standing for name in whole.workloads
    }
