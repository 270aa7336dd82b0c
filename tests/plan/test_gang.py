"""Gang scheduling: which scheduler places the pods, when they may be created, and what is reported meanwhile."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob, with_defaults
from pytorchjob_operator.names import ChildKind, EventType, Reason, ReplicaType
from pytorchjob_operator.observed import Child, Observed, Options, Pod, PodPhase, PodProblem
from pytorchjob_operator.plan import Plan, gang, make_plan, podgroup
from pytorchjob_operator.plan.writes import CreateChild, CreatePod, Event, UpdateChild
from tests.factories import at, condition, make_child, make_job, make_service, make_template, pods, written

VOLCANO, PLUGINS, NATIVE = ChildKind.VOLCANO_POD_GROUP, ChildKind.POD_GROUP, ChildKind.NATIVE_POD_GROUP
SUSPENDED = JobStatus(conditions=(condition(ConditionType.SUSPENDED),))
ENDED = JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))


def gang_job(scheduler: str | None = "volcano", *, suspend: bool = False, **case: Any) -> PyTorchJob:
    """A job of one Master and one Worker that asks for this scheduler."""
    policy = {"schedulingPolicy": {"gangScheduler": scheduler}} if scheduler is not None else {}
    return make_job(runPolicy={"suspend": suspend, **policy}, **case)


def group(kind: ChildKind = VOLCANO, phase: str = "Inqueue", job: PyTorchJob | None = None, **fields: Any) -> Child:
    """The job's PodGroup as it is seen, up to date."""
    body = podgroup.build_pod_group(with_defaults(job or gang_job()), kind)
    return make_child(kind, spec_hash=Child.from_api(kind, body).spec_hash, phase=phase, **fields)


def plan_for(
    job: PyTorchJob,
    *children: Child,
    seen: tuple[Pod, ...] = (),
    cluster: str = "",
    unserved: dict[ChildKind, str] | None = None,
    seconds: float = 0,
) -> Plan:
    """The plan for this job, whose Service is there."""
    options, missing = Options(gang_scheduler=cluster), unserved or {}
    return make_plan(Observed(job, at(seconds), seen, (make_service(), *children), unserved=missing, options=options))


def waiting(plan: Plan) -> str | None:
    """The reason of the condition Waiting."""
    assert plan.status is not None
    found = plan.status.condition(ConditionType.WAITING)
    return found.reason if found else None


@pytest.mark.parametrize(
    ("cluster", "job", "expected"),
    [
        pytest.param("", None, "", id="nobody asks"),
        pytest.param("volcano", None, "volcano", id="the cluster has one"),
        pytest.param("", "volcano", "volcano", id="the job asks for one"),
        pytest.param("volcano", "other", "other", id="the job wins"),
        pytest.param("volcano", "none", "", id="the job wants none"),
        pytest.param("none", None, "", id="the cluster has none"),
        pytest.param("none", "volcano", "volcano", id="the job asks where the cluster has none"),
        pytest.param("volcano", "", "volcano", id="an empty word says nothing"),
    ],
)
def test_who_places_the_pods(cluster: str, job: str | None, expected: str) -> None:
    assert gang.scheduler(gang_job(job), Options(gang_scheduler=cluster)) == expected


BOTH = ["+x-master-0", "+x-worker-0"]
TOO_OLD = make_child(VOLCANO, spec_hash="old", phase="Running")
FOR_PLUGINS = gang_job("batch")
FOR_NATIVE = gang_job("native")


@pytest.mark.parametrize(
    ("job", "children", "expected"),
    [
        pytest.param(gang_job(None), (), BOTH, id="no gang: pods at once"),
        pytest.param(gang_job(), (), [f"+{VOLCANO}"], id="the PodGroup is made first"),
        pytest.param(gang_job(), (group(phase=""),), [], id="Volcano has not looked at it yet"),
        pytest.param(gang_job(), (group(phase="Pending"),), [], id="Volcano has no room for it"),
        pytest.param(gang_job(), (group(phase="Inqueue"),), BOTH, id="Volcano lets it in"),
        pytest.param(gang_job(), (group(phase="Running"),), BOTH, id="it runs: what is missing is made"),
        pytest.param(gang_job(), (group(phase="Unknown"),), BOTH, id="a part of it runs"),
        pytest.param(gang_job(), (group(deleting=True),), [], id="a PodGroup that is going is none"),
        pytest.param(gang_job(), (TOO_OLD,), [f"~{VOLCANO}", *BOTH], id="brought up to date"),
        pytest.param(FOR_PLUGINS, (), [f"+{PLUGINS}"], id="scheduler-plugins: the PodGroup is made first"),
        pytest.param(FOR_PLUGINS, (group(PLUGINS, "", FOR_PLUGINS),), BOTH, id="its scheduler takes pods as they come"),
        pytest.param(FOR_PLUGINS, (group(),), [f"-{VOLCANO}", f"+{PLUGINS}"], id="another scheduler"),
        pytest.param(FOR_NATIVE, (), [f"+{NATIVE}"], id="Kubernetes itself: the PodGroup is made first"),
        pytest.param(FOR_NATIVE, (group(NATIVE, "", FOR_NATIVE),), BOTH, id="it takes pods as they come"),
        pytest.param(gang_job("none"), (group(),), [f"-{VOLCANO}", *BOTH], id="switched off"),
        pytest.param(gang_job(suspend=True, status=SUSPENDED), (group(),), ["-Service", f"-{VOLCANO}"], id="suspended"),
        pytest.param(gang_job(status=ENDED), (group(),), [f"-{VOLCANO}"], id="at the end it is given back"),
    ],
)
def test_what_is_written(job: PyTorchJob, children: tuple[Child, ...], expected: list[str]) -> None:
    assert written(plan_for(job, *children)) == expected


def test_a_lost_pod_is_not_made_again_while_the_gang_is_not_let_in() -> None:
    job = gang_job(status=JobStatus(conditions=(condition(ConditionType.CREATED),)))
    assert written(plan_for(job, group(phase="Pending"), seen=pods("Running", "Running")[:1])) == []


def test_the_whole_gang_follows_the_spec() -> None:
    job, before = gang_job(workers=3), group(job=gang_job(workers=1))
    plan = plan_for(job, before)
    update = next(write for write in plan.writes if isinstance(write, UpdateChild))
    assert update.body["spec"]["minMember"] == 4
    assert "queue" not in update.body["spec"]


def test_a_new_podgroup_of_volcano_has_a_queue() -> None:
    (write,) = plan_for(gang_job()).writes
    assert isinstance(write, CreateChild)
    assert write.body["spec"]["queue"] == "default"


UNSEEN = {VOLCANO: ""}
ABSENT = {VOLCANO: "the server could not find the requested resource"}
FULL = PodProblem("NotEnoughResources", "2/2 tasks in gang unschedulable")


@pytest.mark.parametrize(
    ("children", "unserved", "expected"),
    [
        pytest.param((), {}, None, id="a PodGroup that is about to be made is no trouble"),
        pytest.param((), UNSEEN, None, id="nor is one that is about to be looked for"),
        pytest.param((), ABSENT, "GangSchedulerUnavailable", id="the kind is not there"),
        pytest.param((group(phase=""),), {}, "PodGroupPending", id="Volcano has not looked yet"),
        pytest.param((group(phase="Pending"),), {}, "PodGroupPending", id="Volcano has no room"),
        pytest.param((group(phase="Pending", problem=FULL),), {}, "PodGroupUnschedulable", id="Volcano says why"),
        pytest.param((group(),), {}, None, id="let in"),
    ],
)
def test_what_the_job_waits_for(
    children: tuple[Child, ...], unserved: dict[ChildKind, str], expected: str | None
) -> None:
    plan = plan_for(gang_job(), *children, unserved=unserved)
    assert waiting(plan) == expected
    assert any(isinstance(write, CreatePod) for write in plan.writes) is (children == (group(),))


def pod_bodies(job: PyTorchJob, *children: Child) -> list[dict[str, Any]]:
    return [dict(write.body) for write in plan_for(job, *children).writes if isinstance(write, CreatePod)]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param({}, (None, None), id="nothing said"),
        pytest.param({"priorityClassName": "low", "schedulerName": "mine"}, ("low", "mine"), id="the template's own"),
    ],
)
def test_the_pods_of_kubernetes_own_gang(template: dict[str, Any], expected: tuple[str | None, str | None]) -> None:
    job = gang_job("native", template=make_template(**template))
    for body in pod_bodies(job, group(NATIVE, "", job)):
        spec = body["spec"]
        assert spec["schedulingGroup"] == {"podGroupName": "x"}
        assert (spec.get("priorityClassName"), spec.get("schedulerName")) == expected


UNSCHEDULABLE = PodProblem("Unschedulable", "0/63 nodes are available: 1 pod of the gang does not fit")
MASTER, WORKER = pods("Pending", "Pending")


@pytest.mark.parametrize(
    ("seen", "problem", "reason", "made"),
    [
        pytest.param((), None, None, BOTH, id="no pod yet"),
        pytest.param((replace(MASTER, grouped=True),), None, None, BOTH[1:], id="in its group"),
        pytest.param((MASTER,), None, "GangSchedulerUnavailable", [], id="the API server has dropped the field"),
        pytest.param((replace(MASTER, node="n"),), None, None, BOTH[1:], id="a pod from before runs"),
        pytest.param(
            (replace(MASTER, grouped=True), replace(WORKER, grouped=True)),
            UNSCHEDULABLE,
            "PodGroupUnschedulable",
            [],
            id="the gang does not fit",
        ),
        pytest.param(
            (replace(MASTER, grouped=True, node="n"), replace(WORKER, grouped=True)),
            UNSCHEDULABLE,
            None,
            [],
            id="it fitted once",
        ),
    ],
)
def test_what_a_job_of_kubernetes_own_gang_waits_for(
    seen: tuple[Pod, ...], problem: PodProblem | None, reason: str | None, made: list[str]
) -> None:
    plan = plan_for(FOR_NATIVE, group(NATIVE, "", FOR_NATIVE, problem=problem), seen=seen)
    assert waiting(plan) == reason
    assert written(plan) == made


NOT_QUEUED = "PodGroup x is not in volcano's queue yet (phase: Pending)"


@pytest.mark.parametrize(
    ("children", "unserved", "message"),
    [
        pytest.param((group(phase="Pending"),), {}, f"{NOT_QUEUED}: no pod is created until it is", id="no room"),
        pytest.param(
            (group(phase=""),),
            {},
            "PodGroup x is not in volcano's queue yet (phase: none): no pod is created until it is",
            id="no phase yet",
        ),
        pytest.param(
            (group(phase="Pending", problem=FULL),),
            {},
            f"{NOT_QUEUED}: NotEnoughResources: 2/2 tasks in gang unschedulable",
            id="Volcano's words",
        ),
        pytest.param(
            (),
            ABSENT,
            "no pod is created: the resource scheduling.volcano.sh/v1beta1 PodGroup cannot be used: the server could "
            "not find the requested resource; install volcano with its resources, grant the operator access (chart: "
            "gangScheduling.enabled), or set spec.runPolicy.schedulingPolicy.gangScheduler to none",
            id="what to do",
        ),
    ],
)
def test_the_message_says_volcanos_words_and_what_to_do(
    children: tuple[Child, ...], unserved: dict[ChildKind, str], message: str
) -> None:
    status = plan_for(gang_job(), *children, unserved=unserved).status
    assert status is not None
    assert status.conditions[-1].message == message


def test_the_message_names_the_scheduler_of_the_cluster() -> None:
    status = plan_for(gang_job(None), cluster="volcano", unserved=ABSENT).status
    assert status is not None
    assert "; install volcano with its resources" in status.conditions[-1].message


def test_a_kind_that_cannot_be_seen_is_asked_for() -> None:
    assert plan_for(gang_job(), unserved=UNSEEN).needs == {VOLCANO}
    assert plan_for(gang_job(status=ENDED), unserved=UNSEEN).needs == {VOLCANO}
    assert plan_for(gang_job(None), unserved=UNSEEN).needs == set()


def test_held_back_pods_are_told_once_in_v1s_field_and_the_clock_of_the_deadline_waits() -> None:
    first = plan_for(gang_job(), group(phase="Pending")).status
    assert first is not None
    assert (first.last_reconcile_time, first.start_time) == (at(0), None)
    again = plan_for(gang_job(status=first), group(phase="Pending"), seconds=60)
    assert again.empty
    assert again.wake_at is None


def test_the_job_starts_when_its_pods_are_made() -> None:
    held = plan_for(gang_job(), group(phase="Pending")).status
    plan = plan_for(gang_job(status=held), group(), seconds=60)
    assert written(plan) == BOTH
    assert plan.status is not None
    assert (plan.status.last_reconcile_time, plan.status.start_time) == (at(0), at(60))
    assert waiting(plan) is None


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        pytest.param("none", gang.Marks(), id="nobody"),
        pytest.param(
            "volcano",
            gang.Marks(
                annotations={"scheduling.k8s.io/group-name": "x", "volcano.sh/task-spec": "worker"},
                fields={"schedulerName": "volcano"},
            ),
            id="Volcano",
        ),
        pytest.param(
            "batch",
            gang.Marks(labels={"scheduling.x-k8s.io/pod-group": "x"}, fields={"schedulerName": "batch"}),
            id="scheduler-plugins",
        ),
    ],
)
def test_what_pods_carry(scheduler: str, expected: gang.Marks) -> None:
    assert gang.marks(with_defaults(gang_job(scheduler)), ReplicaType.WORKER, Options()) == expected


@pytest.mark.parametrize(
    ("given", "expected_roles"),
    [
        pytest.param({}, [], id="none: the gang's is set"),
        pytest.param({"schedulerName": "volcano"}, [], id="the gang's own"),
        pytest.param({"schedulerName": "mine"}, ["Master", "Worker"], id="another is left, and told of for each role"),
    ],
)
def test_a_scheduler_in_the_template_stays(given: dict[str, str], expected_roles: list[str]) -> None:
    plan = plan_for(gang_job(template=make_template(**given)), group(job=gang_job()))
    names = {write.body["spec"]["schedulerName"] for write in plan.writes if isinstance(write, CreatePod)}
    warned = [event for event in plan.events if event.reason == "SetPodTemplateSchedulerName"]
    assert names == {given.get("schedulerName", "volcano")}
    assert warned == [
        Event(
            "SetPodTemplateSchedulerName",
            f"spec.pytorchReplicaSpecs.{role}.template.spec.schedulerName (mine) is not the gang scheduler volcano and "
            "stays unchanged: remove it, or set spec.runPolicy.schedulingPolicy.gangScheduler",
            EventType.WARNING,
        )
        for role in expected_roles
    ]


def test_without_a_gang_a_scheduler_in_the_template_is_no_warning() -> None:
    plan = plan_for(gang_job("none", template=make_template(schedulerName="mine")))
    assert "SetPodTemplateSchedulerName" not in {event.reason for event in plan.events}


def test_the_warning_comes_once() -> None:
    job = gang_job(template=make_template(schedulerName="mine"))
    expected_roles = plan_for(job, group()).status
    assert expected_roles is not None
    again = plan_for(job.model_copy(update={"status": expected_roles}), group())
    assert "SetPodTemplateSchedulerName" not in {event.reason for event in again.events}


@pytest.mark.parametrize("job", [gang_job(suspend=True, status=SUSPENDED), gang_job(status=ENDED)])
def test_giving_the_podgroup_back_is_told(job: PyTorchJob) -> None:
    events = [(event.reason, event.message) for event in plan_for(job, group()).events]
    assert ("SuccessfulDeletePodGroup", "Deleted PodGroup: x") in events


def test_a_running_gang_shows_no_wait() -> None:
    plan = plan_for(gang_job(), group(phase="Running"), seen=pods(PodPhase.RUNNING, PodPhase.RUNNING))
    assert (waiting(plan), written(plan)) == (None, [])


def test_why_pods_are_held_back_is_an_event_once() -> None:
    plan = plan_for(gang_job(), group(phase="Pending"))
    expected_roles = [event for event in plan.events if event.reason is Reason.POD_GROUP_PENDING]
    assert [event.type for event in expected_roles] == [EventType.NORMAL]
    again = plan_for(gang_job(status=plan.status), group(phase="Pending"), seconds=60)
    assert [event for event in again.events if event.reason is Reason.POD_GROUP_PENDING] == []
