"""What is read of an API object: the few fields that decisions need, and nothing that an outsider wrote is believed."""

from datetime import datetime
from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.names import ChildKind, LossCause, ReplicaType
from pytorchjob_operator.observed import Child, NodeHealth, NodeState, Pod, PodPhase
from pytorchjob_operator.problem import Crash
from tests.factories import NOW

OWNED = [
    {"apiVersion": "v1", "kind": "Other", "name": "friend", "uid": "uid-friend"},
    {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "x", "uid": "uid-x", "controller": True},
]


def api_pod(*, labels: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    obj: dict[str, Any] = {"metadata": {"name": "x-worker-0", "uid": "u", "labels": labels, **meta}}
    return Pod.from_api(obj if status is None else {**obj, "status": status})


def terminated(code: int, name: str = "pytorch") -> dict[str, Any]:
    return {"name": name, "restartCount": 2, "state": {"terminated": {"exitCode": code}}}


def test_a_pod_is_cut_down_to_what_decisions_need() -> None:
    labels = names.replica_labels("x", ReplicaType.WORKER, 3)
    status = {"phase": "Failed", "containerStatuses": [terminated(0, "side"), terminated(137)]}
    pod = api_pod(labels=labels, status=status, namespace="ns", resourceVersion="12", ownerReferences=OWNED)
    assert pod == Pod(
        name="x-worker-0",
        namespace="ns",
        uid="u",
        resource_version=12,
        owner_uid="uid-x",
        replica_type=ReplicaType.WORKER,
        index=3,
        phase=PodPhase.FAILED,
        exit_code=137,
        restarts=4,
        cause=LossCause.SIGNAL,
        crash=Crash(exits=3, code=137),
    )


@pytest.mark.parametrize(
    ("label", "index"),
    [
        pytest.param("0", 0, id="the first"),
        pytest.param("1000000", 1_000_000, id="the largest that is believed"),
        pytest.param("1000001", None, id="one beyond the bound is nobody's"),
        pytest.param("9" * 5000, None, id="a huge number is not even parsed"),
        pytest.param("-1", None, id="a negative number"),
        pytest.param("²", None, id="a digit that int() refuses"),
        pytest.param("\uff11", None, id="a digit of another alphabet"),
        pytest.param("", None, id="an empty label"),
        pytest.param(None, None, id="no label"),
    ],
)
def test_an_index_label(label: str | None, index: int | None) -> None:
    assert api_pod(labels={names.LABEL_REPLICA_INDEX: label}).index == index


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        pytest.param("master", ReplicaType.MASTER, id="master"),
        pytest.param("worker", ReplicaType.WORKER, id="worker"),
        pytest.param("Worker", None, id="labels are lower case"),
        pytest.param("ps", None, id="another operator's role"),
        pytest.param(None, None, id="no label"),
    ],
)
def test_a_role_label(label: str | None, expected: ReplicaType | None) -> None:
    assert api_pod(labels={names.LABEL_REPLICA_TYPE: label}).replica_type is expected


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        pytest.param(None, PodPhase.PENDING, id="no status yet"),
        pytest.param({}, PodPhase.PENDING, id="no phase yet"),
        pytest.param({"phase": "Running"}, PodPhase.RUNNING, id="running"),
        pytest.param({"phase": "Dreaming"}, PodPhase.UNKNOWN, id="a phase of a later Kubernetes"),
    ],
)
def test_a_phase(status: dict[str, Any] | None, phase: PodPhase) -> None:
    assert api_pod(status=status).phase is phase


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        pytest.param(None, None, id="an evicted pod has none"),
        pytest.param([{"name": "pytorch", "state": {"running": {}}}], None, id="it still runs"),
        pytest.param([{"name": "pytorch"}], None, id="no state yet"),
        pytest.param([terminated(1, "side")], None, id="only a sidecar ended"),
        pytest.param([terminated(1, "side"), terminated(0)], 0, id="the main container's counts, wherever it stands"),
    ],
)
def test_an_exit_code(statuses: list[dict[str, Any]] | None, code: int | None) -> None:
    assert api_pod(status={"containerStatuses": statuses}).exit_code == code


@pytest.mark.parametrize(
    ("phase", "deleting", "state"),
    [
        pytest.param("Pending", False, (False, False, False), id="pending counts nowhere"),
        pytest.param("Pending", True, (False, False, False), id="pending and terminating counts nowhere"),
        pytest.param("Running", False, (True, False, False), id="running is active"),
        pytest.param("Running", True, (False, False, True), id="running and terminating is failed"),
        pytest.param("Succeeded", False, (False, True, False), id="succeeded"),
        pytest.param("Succeeded", True, (False, True, False), id="succeeded stays so while it goes"),
        pytest.param("Failed", False, (False, False, True), id="failed"),
        pytest.param("Unknown", False, (False, False, False), id="unknown counts nowhere"),
    ],
)
def test_active_succeeded_failed(phase: str, deleting: bool, state: tuple[bool, bool, bool]) -> None:
    pod = api_pod(status={"phase": phase}, deletionTimestamp="2026-01-02T03:04:05Z" if deleting else None)
    assert (pod.active, pod.succeeded, pod.failed) == state


@pytest.mark.parametrize(
    ("owners", "uid"),
    [
        pytest.param(OWNED, "uid-x", id="the controller owns"),
        pytest.param(OWNED[:1], None, id="another reference does not"),
        pytest.param(None, None, id="nobody does"),
    ],
)
def test_an_owner(owners: list[dict[str, Any]] | None, uid: str | None) -> None:
    obj = {"metadata": {"name": "x", "ownerReferences": owners}}
    assert Child.from_api(ChildKind.SERVICE, obj).owner_uid == Pod.from_api(obj).owner_uid == uid


def test_a_service_that_goes_is_seen_to_go() -> None:
    seen = Child.from_api(
        ChildKind.SERVICE, {"metadata": {"name": "x", "resourceVersion": "7", "deletionTimestamp": "now"}}
    )
    assert (seen.name, seen.resource_version, seen.deleting) == ("x", 7, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-02T03:04:05Z", NOW, id="as the API server writes it"),
        pytest.param("2026-01-02T03:04:05", None, id="a time of no zone cannot be compared"),
        pytest.param("yesterday", None, id="no time at all"),
        pytest.param(None, None, id="unset"),
    ],
)
def test_when_it_was_made(text: str | None, expected: datetime | None) -> None:
    assert api_pod(creationTimestamp=text).created_at == expected


def test_restarts_of_init_containers_count() -> None:
    status = {"initContainerStatuses": [{"restartCount": 3}], "containerStatuses": [terminated(1), {"name": "new"}]}
    assert api_pod(status=status).restarts == 5


@pytest.mark.parametrize(
    ("subdomain", "anonymous"),
    [
        pytest.param("x", False, id="a pod of this operator"),
        pytest.param(None, True, id="a pod of v1"),
        pytest.param("other", True, id="a pod of v1 with a subdomain of the user's"),
    ],
)
def test_whether_the_jobs_service_names_a_pod(subdomain: str | None, anonymous: bool) -> None:
    meta = {"name": "x-worker-0", "labels": names.replica_labels("x", ReplicaType.WORKER, 0)}
    assert Pod.from_api({"metadata": meta, "spec": {"subdomain": subdomain}}).anonymous is anonymous


GOES = {"deletionTimestamp": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        pytest.param({**GOES, "deletionGracePeriodSeconds": 30}, NOW, id="the end of its grace period"),
        pytest.param({**GOES, "deletionGracePeriodSeconds": 0}, None, id="none after force: a finalizer holds it"),
        pytest.param({}, None, id="nobody deletes it"),
    ],
)
def test_until_when_a_pod_may_take_to_end(meta: dict[str, Any], expected: datetime | None) -> None:
    assert api_pod(**meta).deleted_at == expected


def test_where_a_pod_runs() -> None:
    meta = {"metadata": {"name": "x-worker-0"}}
    assert Pod.from_api({**meta, "spec": {"nodeName": "n"}}).node == "n"
    assert Pod.from_api(meta).node == ""


def test_the_zone_of_a_pod_by_its_label() -> None:
    assert api_pod(labels={names.LABEL_ZONE: "eu-1a"}).zone == "eu-1a"
    assert api_pod().zone == ""


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param(None, (False, None), id="no conditions"),
        pytest.param([{"type": "Ready", "status": "False", "lastTransitionTime": "x"}], (False, None), id="not ready"),
        pytest.param([{"type": "PodScheduled", "status": "True"}], (False, None), id="another condition"),
        pytest.param([{"type": "Ready", "status": "True"}], (True, None), id="ready, without a time"),
        pytest.param(
            [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            (True, NOW),
            id="ready since then",
        ),
    ],
)
def test_whether_a_pod_is_ready(conditions: Any, expected: tuple[bool, datetime | None]) -> None:
    pod = api_pod(status={"conditions": conditions})
    assert (pod.ready, pod.ready_since) == expected


def ready(status: str, since: str = "2026-01-02T03:04:05Z") -> list[dict[str, str]]:
    pressure = {"type": "MemoryPressure", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    return [pressure, {"type": "Ready", "status": status, "lastTransitionTime": since}]


OUT = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("conditions", "taints", "expected"),
    [
        pytest.param(ready("True"), None, NodeState(NodeHealth.READY), id="ready"),
        pytest.param(ready("False"), None, NodeState(NodeHealth.NOT_READY, NOW), id="its kubelet says that it is not"),
        pytest.param(ready("Unknown"), None, NodeState(NodeHealth.NOT_READY, NOW), id="its kubelet says nothing"),
        pytest.param(ready("Unknown", "soon"), None, NodeState(NodeHealth.NOT_READY), id="nobody knows since when"),
        pytest.param(ready("Unknown"), OUT, NodeState(NodeHealth.OUT_OF_SERVICE), id="out of service"),
        pytest.param(ready("True"), OUT, NodeState(NodeHealth.READY), id="back in service, with the taint forgotten"),
        pytest.param(None, OUT[:1], NodeState(NodeHealth.UNKNOWN), id="a node that is just being made"),
    ],
)
def test_a_node(conditions: Any, taints: Any, expected: NodeState) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": {"conditions": conditions}}
    assert NodeState.from_api(node) == expected


FULL = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "3/3 unschedulable"}
LATER = {**FULL, "reason": "NotEnoughTasks", "lastTransitionTime": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(None, ("", None), id="nobody has looked at it"),
        pytest.param({"phase": "Inqueue"}, ("Inqueue", None), id="let in"),
        pytest.param({"phase": "Pending", "conditions": None}, ("Pending", None), id="no words"),
        pytest.param({"phase": "Pending", "conditions": [FULL]}, ("Pending", "NotEnoughResources"), id="no room"),
        pytest.param({"conditions": [LATER, FULL]}, ("", "NotEnoughTasks"), id="the newest word counts"),
        pytest.param({"conditions": [{**FULL, "status": "False"}]}, ("", None), id="no longer so"),
        pytest.param({"conditions": [{"type": "Scheduled", "status": "True"}]}, ("", None), id="good news"),
        pytest.param({"phase": "x" * 10_000}, ("x" * 64, None), id="no more than a word is kept"),
    ],
)
def test_a_podgroup(status: Any, expected: tuple[str, str | None]) -> None:
    seen = Child.from_api(ChildKind.VOLCANO_POD_GROUP, {"metadata": {"name": "x"}, "status": status})
    assert (seen.phase, seen.problem and seen.problem.reason) == expected


def test_the_words_of_a_gang_scheduler_are_bounded() -> None:
    status = {"conditions": [{**FULL, "message": "x" * 100_000}]}
    seen = Child.from_api(ChildKind.VOLCANO_POD_GROUP, {"metadata": {"name": "x"}, "status": status})
    assert seen.problem is not None
    assert len(seen.problem.message) == 1024
