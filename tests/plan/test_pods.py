"""One replica's pod: the user's template, and only the additions that the module names."""

import copy
from typing import Any

import pytest

from pytorchjob_agent.contract.environment import ReplicaEnv
from pytorchjob_operator import names
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan.pods import build_pod
from tests.factories import JOB_UID, full_job, make_template, replica

UNKNOWN: dict[str, Any] = {
    "initContainers": [{"name": "init", "image": "i:1", "env": [{"name": "A", "value": "1"}]}],
    "volumes": [{"name": "later", "futureSource": {"deep": [1, 2.5, None, {"x": True}]}}],
    "aFieldOfTomorrow": {"a": []},
    "securityContext": {"runAsNonRoot": True},
    "terminationGracePeriodSeconds": 7,
}


def pod(who: str = "worker-0", *, domain: str = "cluster.local", **case: Any) -> dict[str, Any]:
    return build_pod(full_job(**case), replica(who), Options(cluster_domain=domain))


def spec(who: str = "worker-0", **template: Any) -> dict[str, Any]:
    built: dict[str, Any] = pod(who, template=make_template(**template))["spec"]
    return built


def test_a_pod_belongs_to_its_job() -> None:
    meta = pod("worker-0")["metadata"]
    assert (meta["name"], meta["namespace"]) == ("x-worker-0", "ns")
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "x",
            "uid": JOB_UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@pytest.mark.parametrize(
    ("who", "case", "role"),
    [
        pytest.param("master-0", {}, "master", id="Master 0 has the master role"),
        pytest.param("worker-0", {}, None, id="beside a Master, worker 0 has none"),
        pytest.param("worker-0", {"master": None}, "master", id="without a Master, worker 0 has it"),
        pytest.param("worker-1", {"master": None, "workers": 2}, None, id="worker 1 never has it"),
    ],
)
def test_labels_are_those_of_v1(who: str, case: dict[str, Any], role: str | None) -> None:
    kind, _, index = who.partition("-")
    assert pod(who, **case)["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "x",
        "training.kubeflow.org/replica-type": kind,
        "training.kubeflow.org/replica-index": index,
    } | ({"training.kubeflow.org/job-role": role} if role else {})


def test_labels_of_the_job_are_not_handed_on() -> None:
    assert "team" not in pod(meta={"labels": {"team": "a"}, "annotations": {"team": "a"}})["metadata"]["labels"]


def test_the_users_metadata_is_kept_and_ours_wins() -> None:
    given = {
        "labels": {"app": "a", names.LABEL_REPLICA_INDEX: "9"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "finalizers": ["a/b"],
        "name": "ignored",
        "namespace": "elsewhere",
    }
    meta = pod(template={"metadata": given, **make_template()})["metadata"]
    assert (meta["name"], meta["namespace"]) == ("x-worker-0", "ns")
    assert (meta["labels"]["app"], meta["labels"][names.LABEL_REPLICA_INDEX]) == ("a", "0")
    assert (meta["annotations"], meta["finalizers"]) == (given["annotations"], given["finalizers"])


def test_a_replica_has_a_name_in_the_jobs_service() -> None:
    assert (spec()["hostname"], spec()["subdomain"]) == ("x-worker-0", "x")


@pytest.mark.parametrize(
    ("template", "dns"),
    [
        pytest.param({}, {"searches": ["x.ns.svc.k8s"]}, id="the job's domain is searched"),
        pytest.param(
            {"dnsPolicy": "ClusterFirst"}, {"searches": ["x.ns.svc.k8s"]}, id="the default policy, said aloud"
        ),
        pytest.param({"dnsPolicy": "None", "dnsConfig": {"a": 1}}, {"a": 1}, id="a pod with its own DNS is left alone"),
        pytest.param({"dnsPolicy": "Default"}, None, id="the node's DNS is left alone"),
        pytest.param(
            {"dnsConfig": {"searches": ["mine"], "options": [{"name": "ndots"}]}},
            {"searches": ["mine", "x.ns.svc.k8s"], "options": [{"name": "ndots"}]},
            id="the user's search comes first",
        ),
        pytest.param(
            {"dnsConfig": {"searches": ["x.ns.svc.k8s"]}}, {"searches": ["x.ns.svc.k8s"]}, id="not searched twice"
        ),
    ],
)
def test_short_names_resolve_inside_the_job(template: dict[str, Any], dns: dict[str, Any] | None) -> None:
    assert pod(domain="k8s", template=make_template(**template))["spec"].get("dnsConfig") == dns


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(None, "OnFailure", id="unset is OnFailure"),
        pytest.param("Always", "Always", id="Always is the kubelet's"),
        pytest.param("OnFailure", "OnFailure", id="OnFailure is the kubelet's"),
        pytest.param("Never", "Never", id="Never"),
        pytest.param("ExitCode", "Never", id="ExitCode is decided by the operator, so the kubelet keeps out"),
    ],
)
def test_the_restart_policy_is_the_replicas(policy: str | None, expected: str) -> None:
    built = pod(restart=policy, template=make_template(restartPolicy="OnFailure"))
    assert built["spec"]["restartPolicy"] == expected


def test_every_container_gets_the_env_behind_its_own_and_init_containers_none() -> None:
    own = [{"name": "RANK", "value": "7"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    containers = [{"name": "pytorch", "env": own}, {"name": "side"}]
    built = spec("worker-0", containers=containers, initContainers=UNKNOWN["initContainers"])
    first, side = built["containers"]
    assert first["env"][:2] == own
    assert first["env"][2:] == side["env"]
    assert {"name": "RANK", "value": "1"} in side["env"]
    assert built["initContainers"] == UNKNOWN["initContainers"]


def test_the_agent_reads_its_env_out_of_the_pod() -> None:
    built = pod("worker-1", workers=3, nprocPerNode="2")
    env = {variable["name"]: variable["value"] for variable in built["spec"]["containers"][0]["env"]}
    assert ReplicaEnv.from_env(env) == ReplicaEnv(4, 4, "2", "x-master-0.x", 23456, world_size=8, rank=2)


def test_what_is_not_known_is_kept_as_it_is() -> None:
    built = spec(**UNKNOWN)
    assert {key: built[key] for key in UNKNOWN} == UNKNOWN


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, "FallbackToLogsOnError", id="unset"),
        pytest.param({"terminationMessagePolicy": "File"}, "File", id="the user's own"),
    ],
)
def test_a_failed_script_leaves_its_last_lines_unless_the_user_chose(given: dict[str, Any], expected: str) -> None:
    main, side = {"name": "pytorch", "image": "train:1", **given}, {"name": "side", "image": "other:1"}
    containers = spec(containers=[main, side])["containers"]
    assert [container.get("terminationMessagePolicy") for container in containers] == [expected, None]


def test_the_template_is_never_changed() -> None:
    template = {"metadata": {"labels": {"app": "a"}}, **make_template(dnsConfig={"searches": ["mine"]}, **UNKNOWN)}
    before = copy.deepcopy(template)
    pod("master-0", template=template)
    pod("worker-0", template=template)
    assert template == before


@pytest.mark.parametrize(
    ("template", "ports"),
    [
        pytest.param({}, [{"name": "pytorchjob-port", "containerPort": 23456}], id="the default port is added"),
        pytest.param({"hostNetwork": True}, None, id="not on the host's network, where it would be a host port"),
        pytest.param(
            {"containers": [{"name": "pytorch", "ports": [{"name": "pytorchjob-port", "containerPort": 9}]}]},
            [{"name": "pytorchjob-port", "containerPort": 9}],
            id="the user's port stays",
        ),
    ],
)
def test_the_rendezvous_port(template: dict[str, Any], ports: list[dict[str, Any]] | None) -> None:
    assert spec(**template)["containers"][0].get("ports") == ports
