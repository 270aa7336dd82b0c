"""Reserve pods: who gets one, how long it stays, and what takes its place."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.names import Reason
from pytorchjob_operator.node import Node
from pytorchjob_operator.observed import Observed, Options, Pod, PodPhase, Refusal
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.reserve_pod import GRACE_SECONDS, LIFE_SECONDS, near
from pytorchjob_operator.plan.reserves import END_SECONDS
from pytorchjob_operator.plan.writes import CreatePod, CreateReserve, DeletePod
from tests.factories import at, condition, make_job, make_pod, make_template, observed, written

RESERVE = "x-worker-0-reserve"
ONE: dict[str, Any] = {"agent": {"reservePods": 1}}
TWO: dict[str, Any] = {"agent": {"reservePods": 2}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
BUSY = PodPhase.RUNNING
MASTER = make_pod("master-0", node="n0")
LOST = make_pod("worker-0", node="n1")
GOING = replace(LOST, deleting=True)


def reserve(of: str = "x-worker-0", phase: PodPhase = BUSY, **fields: Any) -> Pod:
    """A reserve pod, on node n2."""
    name = names.reserve_name(of)
    known = {"owner_uid": "uid-x", "replica_type": None, "index": None, "node": "n2", "without_coordinator": True}
    return Pod(
        **{"name": name, "namespace": "ns", "uid": f"uid-{name}", "resource_version": 1, "phase": phase}
        | known
        | {"reserve_for": of, **fields}
    )


def seen(*pods: Pod, cordoned: tuple[str, ...] = ("n1",), job: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """A job of a Master and two workers, of which the second is on node n3."""
    found = observed(make_job(**{"workers": 2, **ONE, **(job or {})}), MASTER, make_pod("worker-1", node="n3"), *pods)
    marked = {node: Node(node, node, 1, cordoned=True) for node in cordoned}
    return replace(found, marked=marked, **fields)


def writes(*pods: Pod, **case: Any) -> list[str]:
    return written(make_plan(seen(*pods, **case)))


@pytest.mark.parametrize(
    ("pods", "case", "expected"),
    [
        pytest.param([LOST], {}, [f"+{RESERVE}"], id="its node is cordoned"),
        pytest.param(
            [replace(LOST, threat="a GPU is unhealthy")], {"cordoned": ()}, [f"+{RESERVE}"], id="its GPU broke"
        ),
        pytest.param([LOST], {"cordoned": ()}, [], id="nothing threatens it"),
        pytest.param([LOST], {"job": {"agent": None}}, [], id="the job asks for none"),
        pytest.param([LOST], {"job": {"agent": {"reservePods": 0}}}, [], id="the job asks for 0"),
        pytest.param([LOST, reserve()], {}, [], id="it has one"),
        pytest.param([LOST, reserve(phase=PodPhase.PENDING, node="")], {}, [], id="it has one that fits nowhere yet"),
        pytest.param([LOST, reserve(phase=PodPhase.FAILED)], {}, [], id="it has one that failed: no second attempt"),
        pytest.param([LOST], {"cordoned": ("n0", "n1")}, ["+x-master-0-reserve"], id="one at a time, the Master first"),
        pytest.param(
            [LOST],
            {"cordoned": ("n0", "n1", "n3"), "job": TWO},
            ["+x-master-0-reserve", f"+{RESERVE}"],
            id="two at a time",
        ),
        pytest.param(
            [LOST, reserve("x-worker-1")],
            {"cordoned": ("n0", "n3")},
            [],
            id="one that is there counts, whose ever it is",
        ),
        pytest.param([LOST], {"job": {"restart": "Never"}}, [], id="its loss ends the job"),
        pytest.param([LOST], {"job": {"template": make_template(nodeName="n1")}}, [], id="it fits no other node"),
        pytest.param([replace(LOST, phase=PodPhase.PENDING)], {}, [], id="it has not started"),
        pytest.param([GOING], {}, [], id="it leaves already: its place is soon needed anyway"),
        pytest.param([LOST], {"postponed": {RESERVE: at(60)}}, [], id="it was refused a moment ago"),
        pytest.param(
            [LOST],
            {"job": {"runPolicy": {"schedulingPolicy": {"gangScheduler": "volcano"}}}},
            ["+PodGroup.scheduling.volcano.sh"],
            id="a gang has no other pods",
        ),
        pytest.param(
            [LOST], {"job": {"meta": {"labels": {names.LABEL_KUEUE_QUEUE: "q"}}}}, [], id="Kueue admits the job"
        ),
    ],
)
def test_which_pods_get_a_reserve(pods: list[Pod], case: dict[str, Any], expected: list[str]) -> None:
    assert writes(*pods, **case) == expected


@pytest.mark.parametrize(
    ("pods", "case", "reason"),
    [
        pytest.param([LOST], {}, None, id="the threat stands"),
        pytest.param([GOING], {}, None, id="its pod leaves"),
        pytest.param([replace(LOST, phase=PodPhase.FAILED)], {}, None, id="its pod has failed, and is replaced"),
        pytest.param([LOST], {"cordoned": ()}, "x-worker-0 is not about to be lost any more", id="the threat is over"),
        pytest.param([], {}, "x-worker-0 starts in its place", id="its pod is gone"),
        pytest.param(
            [replace(LOST, phase=PodPhase.PENDING)], {}, "it is not needed any more", id="its pod starts elsewhere"
        ),
        pytest.param(
            [replace(LOST, phase=PodPhase.SUCCEEDED)], {}, "it is not needed any more", id="its pod has succeeded"
        ),
        pytest.param([LOST], {"job": {"agent": None}}, "it is not needed any more", id="the field is removed"),
    ],
)
def test_how_long_a_reserve_stays(pods: list[Pod], case: dict[str, Any], reason: str | None) -> None:
    plan = make_plan(seen(*pods, reserve(), **case))
    assert [write.reason for write in plan.writes if isinstance(write, DeletePod) and write.name == RESERVE] == (
        [reason] if reason else []
    )


def test_the_reserve_of_a_replica_that_is_scaled_away_goes() -> None:
    assert writes(LOST, reserve("x-worker-2")) == ["-x-worker-2-reserve"]


def test_a_suspended_job_has_no_reserve() -> None:
    status = JobStatus(conditions=(condition(ConditionType.SUSPENDED),))
    plan = make_plan(seen(LOST, reserve(), job={"runPolicy": {"suspend": True}, "status": status}))
    assert f"-{RESERVE}" in written(plan)


@pytest.mark.parametrize("end", [ConditionType.SUCCEEDED, ConditionType.FAILED])
@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_job_that_has_ended_has_no_reserve_whatever_its_clean_pod_policy(end: ConditionType, policy: str) -> None:
    job = {"runPolicy": {"cleanPodPolicy": policy}, "status": JobStatus(conditions=(condition(end),))}
    failed = reserve(phase=PodPhase.FAILED)
    deleted = [write for write in make_plan(seen(failed, job=job)).writes if isinstance(write, DeletePod)]
    assert [write.reason for write in deleted if write.name == RESERVE] == ["the job has ended"]


@pytest.mark.parametrize(
    ("left", "fields", "expected"),
    [
        pytest.param(reserve(), {}, [f"-{RESERVE}"], id="the reserve ends first"),
        pytest.param(reserve(deleting=True, deleted_at=at(1)), {}, [], id="it ends"),
        pytest.param(reserve(deleting=True, deleted_at=at(-60)), {}, ["+x-worker-0"], id="its node is dead"),
        pytest.param(reserve(deleting=True), {}, ["+x-worker-0"], id="a finalizer keeps it"),
        pytest.param(
            reserve(),
            {"refusal": Refusal(Reason.FAILED_DELETE, "no")},
            [f"-{RESERVE}", "+x-worker-0"],
            id="its deletion is refused",
        ),
        pytest.param(None, {}, ["+x-worker-0"], id="it is gone"),
    ],
)
def test_the_new_pod_waits_until_the_resources_are_free(
    left: Pod | None, fields: dict[str, Any], expected: list[str]
) -> None:
    assert writes(*([left] if left else []), **fields) == expected


def test_a_reserve_that_never_ends_delays_the_new_pod_by_seconds() -> None:
    plan = make_plan(seen(reserve()))
    assert plan.wake_at == at(GRACE_SECONDS + END_SECONDS)
    assert "held back" in plan.reason


def preference(plan: Plan) -> Any:
    [write] = [write for write in plan.writes if isinstance(write, CreatePod)]
    return write.body["spec"].get("affinity")


HERE = {"weight": 100, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}}


@pytest.mark.parametrize(
    ("left", "known"),
    [
        pytest.param(reserve(), {"x-worker-0": "n2"}, id="it ran"),
        pytest.param(reserve(phase=PodPhase.PENDING), {"x-worker-0": "n2"}, id="it pulled its image"),
        pytest.param(reserve(phase=PodPhase.PENDING, node=""), {}, id="it fitted nowhere"),
        pytest.param(reserve(phase=PodPhase.FAILED), {}, id="it failed there"),
    ],
)
def test_the_new_pod_prefers_the_node_of_its_reserve(left: Pod, known: dict[str, str]) -> None:
    first = make_plan(seen(left))
    assert first.reserved == known
    after = make_plan(seen(reserved=first.reserved))
    assert preference(after) == ({"nodeAffinity": {PREFERRED: [HERE]}} if known else None)
    assert after.reserved == known, "its creation may be refused"
    assert make_plan(seen(LOST, cordoned=(), reserved=known)).reserved == {}


def test_other_preferences_stay() -> None:
    own = {"podAffinity": {}, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["own"]}, PREFERRED: ["own"]}}
    changed = near({"spec": {"affinity": own, "containers": []}}, "n2")
    expected = {**own, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["own"]}, PREFERRED: ["own", HERE]}}
    assert changed == {"spec": {"affinity": expected, "containers": []}}


def body(**template: Any) -> dict[str, Any]:
    [write] = make_plan(seen(LOST, job={"template": make_template(**template)})).writes
    assert isinstance(write, CreateReserve)
    return dict(write.body)


NOT_N1 = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}


def test_a_reserve_is_the_bare_template_on_another_node() -> None:
    found = body()
    assert found["metadata"] == {
        "name": RESERVE,
        "namespace": "ns",
        "labels": {names.LABEL_OPERATOR_NAME: names.CONTROLLER, names.LABEL_RESERVE_FOR: "x-worker-0"},
        "ownerReferences": found["metadata"]["ownerReferences"],
    }
    hold = {"name": "pytorch", "image": "train:1", "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait $!"]}
    assert found["spec"] == {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [NOT_N1]}]}}},
        "containers": [{**hold, "resources": {}}],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFE_SECONDS,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }


def test_what_decides_where_a_pod_fits_is_kept_and_what_works_is_not() -> None:
    gpu = {"limits": {"nvidia.com/gpu": 8}}
    secure = {"runAsNonRoot": True}
    main = {
        "name": "pytorch",
        "image": "train:1",
        "imagePullPolicy": "Always",
        "resources": gpu,
        "securityContext": secure,
    }
    works = {"command": ["train"], "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1, "hostPort": 1}]}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "livenessProbe": {"exec": {"command": ["x"]}}}
    sidecar = {"name": "logs", "image": "logs:1", "command": ["ship"], "resources": {"limits": {"cpu": 1}}}
    kept = {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"pool": "a"},
        "imagePullSecrets": [{"name": "s"}],
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "securityContext": {"runAsUser": 1000},
        "serviceAccountName": "trainer",
    }
    spec = body(
        **kept,
        containers=[{**main, **works, **mounts}, sidecar],
        initContainers=[{"name": "prepare", "image": "i"}, {"name": "proxy", "image": "p", "restartPolicy": "Always"}],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        hostNetwork=True,
        terminationGracePeriodSeconds=300,
    )["spec"]
    assert {field: spec[field] for field in kept} == kept
    assert not spec.keys() & {"volumes", "initContainers", "hostNetwork"}
    bare = {**main, "command": spec["containers"][0]["command"]}
    assert spec["containers"] == [
        bare,
        {**bare, "name": "logs", "resources": sidecar["resources"]},
        {**bare, "name": "proxy", "resources": {}},
    ]


def test_each_of_the_users_terms_excludes_the_node() -> None:
    terms = [{"matchExpressions": ["zone a"]}, {"matchFields": ["own"]}, {}]
    own = {"podAntiAffinity": {}, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: ["own"]}}
    found = body(affinity=own)["spec"]["affinity"]
    excluded = [{"matchExpressions": ["zone a"], "matchFields": [NOT_N1]}, {"matchFields": ["own", NOT_N1]}, {}]
    assert found == {
        "podAntiAffinity": {},
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": excluded}, PREFERRED: ["own"]},
    }


def test_only_a_pod_with_the_name_that_follows_from_its_label_is_a_reserve() -> None:
    labels = {names.LABEL_RESERVE_FOR: "x-worker-0"}
    read = [Pod.from_api({"metadata": {"name": name, "labels": labels}}) for name in (RESERVE, "x-worker-0", "other")]
    assert [pod.reserve_for for pod in read] == ["x-worker-0", "", ""]


def test_a_reserve_is_no_replica() -> None:
    plain, with_one = (make_plan(seen(LOST, *pods, job=TWO)) for pods in ((), (reserve(),)))
    assert with_one.status is not None
    assert plain.status == with_one.status
    assert plain.coordinator == with_one.coordinator


def test_an_event_names_the_reserve_and_the_reason() -> None:
    [write] = make_plan(seen(LOST)).writes
    assert isinstance(write, CreateReserve)
    what = "a place on another node, as x-worker-0 may be lost: its node n1 is cordoned"
    assert (write.event.reason, write.event.message) == ("ReservePodCreated", f"Created pod: {RESERVE}: {what}")


@pytest.mark.parametrize(
    ("job", "options", "why"),
    [
        pytest.param({}, Options(), None, id="it has an effect"),
        pytest.param({"agent": {"reservePods": 0}}, Options(gang_scheduler="volcano"), None, id="none is wanted"),
        pytest.param(
            {},
            Options(gang_scheduler="volcano"),
            "the gang scheduler volcano counts and places the pods of the gang only",
            id="a gang",
        ),
        pytest.param(
            {"template": {"metadata": {"labels": {names.LABEL_KUEUE_QUEUE: "q"}}, **make_template()}},
            Options(),
            "Kueue has admitted the replicas only, and a reserve pod would exceed the quota of its queue",
            id="a group of pods in a queue of Kueue",
        ),
    ],
)
def test_a_job_that_can_have_no_reserves_shows_it(job: dict[str, Any], options: Options, why: str | None) -> None:
    status = make_plan(seen(job=job, options=options)).status
    assert status is not None
    found = status.condition(ConditionType.CONFIG_VALID)
    expected = ("ReservePodsUnavailable", f"spec.agent.reservePods has no effect: {why}") if why else None
    assert (found and (found.reason, found.message)) == expected


def test_a_refused_reserve_is_tried_again_later() -> None:
    assert make_plan(seen(LOST, postponed={RESERVE: at(300)})).wake_at == at(300)
