"""What the chart makes of its values."""

import base64
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_agent import __version__
from pytorchjob_operator import installed
from pytorchjob_operator.crd.build import build_crd
from pytorchjob_operator.settings import Settings
from tests.chart.conftest import KUBE_VERSION, NAMED, flags, objects
from tests.chart.support import NAME, at, environment

pytestmark = pytest.mark.helm

CHART = Path(__file__).parents[2] / "charts/pytorchjob-operator"
COORDINATOR = f"{NAME}-coordinator"
CRD = ("CustomResourceDefinition", "pytorchjobs.kubeflow.org")
DEPLOYMENT = ("Deployment", NAME)
SECRET_LIMIT = 1024 * 1024
OFF = (
    "jobNetworkPolicies.enabled",
    "serviceMonitor.enabled",
    "podMonitor.enabled",
    "prometheusRule.enabled",
    "dashboards.enabled",
    "kubeStateMetrics.enabled",
    "networkPolicy.enabled",
)
ON = (
    "gangScheduling.enabled",
    "autoscaling.enabled",
    "coordinator.enabled",
    "admissionWarnings.enabled",
    "pdb.enabled",
)


def pod(objects: Any) -> Any:
    (deployment,) = [one for (kind, _), one in objects.items() if kind == "Deployment"]
    return deployment["spec"]["template"]["spec"]


def container(objects: Any) -> Any:
    return pod(objects)["containers"][0]


LINTED = [
    pytest.param([], id="the defaults"),
    pytest.param(['watchNamespaces=["a","b"]', "rbac.nodes=true"], id="some namespaces"),
    pytest.param([f"{switch}=true" for switch in OFF], id="all that is off by default"),
    pytest.param(
        [f"{switch}=false" for switch in (*ON, "crds.install", "rbac.create", "serviceAccount.create")],
        id="nothing that is on by default",
    ),
    pytest.param(
        [
            f"image.digest=sha256:{'0' * 64}",
            "replicas=1",
            'imagePullSecrets=[{"name":"a"}]',
            'tolerations=[{"key":"a","operator":"Exists"}]',
            'affinity={"nodeAffinity":{}}',
            'extraEnv=[{"name":"A","value":"b"}]',
            'podAnnotations={"a":"b"}',
        ],
        id="lists and objects",
    ),
]


@pytest.mark.parametrize("values", LINTED)
def test_lint_finds_nothing(helm: Callable[..., str], values: list[str]) -> None:
    said = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, *NAMED, *flags(*values))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said


def test_the_sets_of_values_cover_every_switch() -> None:
    """A switch that a later version adds must be linted in both positions too."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    switches = {key: value["enabled"] for key, value in known.items() if isinstance(value, dict) and "enabled" in value}
    assert {*OFF} == {f"{key}.enabled" for key, on in switches.items() if not on}
    assert {*ON} == {f"{key}.enabled" for key, on in switches.items() if on}


RESTRICTED = [
    pytest.param("securityContext.runAsNonRoot", True, id="not as root"),
    pytest.param("securityContext.runAsUser", 65532, id="as the image's own user"),
    pytest.param("securityContext.seccompProfile.type", "RuntimeDefault", id="with the runtime's system call filter"),
    pytest.param("containers.0.securityContext.readOnlyRootFilesystem", True, id="on a read-only root"),
    pytest.param("containers.0.securityContext.allowPrivilegeEscalation", False, id="without gaining privileges"),
    pytest.param("containers.0.securityContext.capabilities", {"drop": ["ALL"]}, id="without any capability"),
]


@pytest.mark.parametrize(("path", "value"), RESTRICTED)
@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_pods_run(template: Any, kind: str, path: str, value: object) -> None:
    objects = template()
    spec = pod(objects) if kind == "Deployment" else objects["Pod", f"{NAME}-test"]["spec"]
    assert at(spec, path) == value


def test_only_the_operator_has_a_token(template: Any) -> None:
    objects = template()
    assert pod(objects)["automountServiceAccountToken"] is True
    assert objects["Pod", f"{NAME}-test"]["spec"]["automountServiceAccountToken"] is False
    assert objects["ServiceAccount", NAME]["automountServiceAccountToken"] is False


def test_no_pod_uses_the_host(template: Any) -> None:
    spec = pod(template())
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert [list(volume) for volume in spec["volumes"]] == [["name", "emptyDir"]]


def test_without_an_image_it_refuses_and_names_the_remedy(helm: Callable[..., str]) -> None:
    with pytest.raises(RuntimeError, match="is not set and no image is published yet: run `make install`"):
        helm("template", "x", str(CHART), "--kube-version", KUBE_VERSION)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], True, id="by default"),
        pytest.param(["admissionWarnings.enabled=false"], False, id="switched off"),
    ],
)
def test_deprecated_fields_are_warned_of(helm: Callable[..., str], values: list[str], expected: bool) -> None:
    chosen = [part for value in values for part in ("--set-json", value)]
    found = objects(helm("template", NAME, str(CHART), "--kube-version", KUBE_VERSION, *NAMED, *chosen))
    name = f"{NAME}-deprecated"
    policy = found.get(("ValidatingAdmissionPolicy", name))
    binding = found.get(("ValidatingAdmissionPolicyBinding", name))
    assert (policy is not None, binding is not None) == (expected, expected)
    if policy is not None and binding is not None:
        assert policy["spec"]["failurePolicy"] == "Ignore"
        assert binding["spec"] == {"policyName": name, "validationActions": ["Warn"]}


DIGEST = "sha256:" + "0" * 64
IMAGES = [
    pytest.param([], f"pytorchjob/operator:{__version__}", id="the tag is the chart's appVersion"),
    pytest.param(["image.tag=dev"], "pytorchjob/operator:dev", id="a tag"),
    pytest.param(["image.repository=own/operator"], f"own/operator:{__version__}", id="a repository"),
    pytest.param([f"image.digest={DIGEST}", "image.tag=dev"], f"pytorchjob/operator@{DIGEST}", id="a digest wins"),
    pytest.param(["image.registry=r.test"], f"r.test/pytorchjob/operator:{__version__}", id="a registry"),
    pytest.param(
        ["global.imageRegistry=g.test"], f"g.test/pytorchjob/operator:{__version__}", id="a registry for all charts"
    ),
    pytest.param(
        ["global.imageRegistry=g.test", "image.registry=r.test"],
        f"r.test/pytorchjob/operator:{__version__}",
        id="the image's own registry wins",
    ),
]


@pytest.mark.parametrize(("values", "image"), IMAGES)
def test_image(template: Any, values: list[str], image: str) -> None:
    objects = template(*values)
    assert container(objects)["image"] == image
    assert objects["Pod", f"{NAME}-test"]["spec"]["containers"][0]["image"] == image
    # Where nobody names another, the agent is taken from the image that is there already.
    assert environment(container(objects))["PYTORCHJOB_AGENT_IMAGE"] == image


def test_pytorchjob_plan_knows_the_charts_defaults(template: Any) -> None:
    given = environment(container(template()))
    settings = Settings.from_env(given | {"PYTORCHJOB_LEASE_NAMESPACE": installed.NAMESPACE})
    planned = Settings.from_env(installed.CHART)
    assert settings.options() == planned.options()
    assert settings.coordinator_address.replace(".space.", f".{installed.NAMESPACE}.") == planned.coordinator_address
    assert (settings.coordinator, settings.coordinator_tls) == (planned.coordinator, planned.coordinator_tls)


SETTINGS = [
    pytest.param(
        [],
        Settings(
            lease_namespace="space",
            log_format="json",
            coordinator=True,
            coordinator_address=f"{COORDINATOR}.space.svc.cluster.local:29600",
            agent_image=f"pytorchjob/operator:{__version__}",
        ),
        id="defaults",
    ),
    pytest.param(
        ["coordinator.enabled=false"],
        Settings(lease_namespace="space", log_format="json", agent_image=f"pytorchjob/operator:{__version__}"),
        id="no coordinator",
    ),
    pytest.param(
        [
            'watchNamespaces=["a","b"]',
            "log.level=DEBUG",
            "log.format=text",
            "clusterDomain=k.test",
            "stuckPodSeconds=0",
            "gangScheduling.scheduler=volcano",
            'accelerators=["example.com/npu*","b/c"]',
            'nodeConditions=["GpuBad=True","Fabric=Unknown"]',
            "replicaServices=true",
            "coordinator.port=7000",
            "coordinator.tls=false",
            "fullnameOverride=train",
            "agentImage=own/agent:2",
            "agent.default=Inject",
            "kueue.externalFramework=true",
        ],
        Settings(
            ("a", "b"),
            lease_namespace="space",
            coordinator=True,
            coordinator_port=7000,
            coordinator_address="train-coordinator.space.svc.k.test:7000",
            coordinator_tls=False,
            coordinator_secret="train-coordinator",
            log_level="DEBUG",
            log_format="text",
            cluster_domain="k.test",
            stuck_pod_seconds=0,
            gang_scheduler="volcano",
            accelerators=("example.com/npu*", "b/c"),
            node_conditions=("GpuBad=True", "Fabric=Unknown"),
            replica_services=True,
            agent_image="own/agent:2",
            agent_default="Inject",
            kueue=True,
            watch_nodes=False,
        ),
        id="all that values can set",
    ),
]


@pytest.mark.parametrize(("values", "settings"), SETTINGS)
def test_the_operator_understands_its_environment(template: Any, values: list[str], settings: Settings) -> None:
    env = environment(container(template(*values)), "space")
    assert Settings.from_env(env) == settings


def test_what_agents_dial_is_the_coordinators_service(template: Any) -> None:
    objects = template("coordinator.port=7000")
    (port,) = objects["Service", COORDINATOR]["spec"]["ports"]
    named = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    settings = Settings.from_env(environment(container(objects), "space"))
    assert settings.coordinator_address == f"{COORDINATOR}.space.svc.cluster.local:{port['port']}"
    assert settings.coordinator_port == named[port["targetPort"]] == 7000


@pytest.mark.parametrize("name", ["train", "a" * 63, "a" * 50 + "-" + "b" * 12], ids=["short", "long", "cut at a dash"])
def test_another_name_is_the_coordinators_too_and_no_longer_than_a_service_may_have(template: Any, name: str) -> None:
    objects = template(f"fullnameOverride={name}")
    (service,) = [one for kind, one in objects if kind == "Service" and one.endswith("-coordinator")]
    env = environment(container(objects))
    assert len(service) <= 63
    assert "--" not in service
    assert env["PYTORCHJOB_OPERATOR_COORDINATOR_ADDRESS"].split(".")[0] == service
    assert env["PYTORCHJOB_OPERATOR_COORDINATOR_SECRET"] == service
    assert objects["Role", service]["rules"][1]["resourceNames"] == [service]


def test_without_a_coordinator_nothing_of_it_is_left(template: Any) -> None:
    objects = template("coordinator.enabled=false", "networkPolicy.enabled=true")
    assert not [key for key in objects if "coordinator" in key[1]]
    assert [port["name"] for port in container(objects)["ports"]] == ["http"]
    assert len(objects["NetworkPolicy", NAME]["spec"]["ingress"]) == 1


def test_the_network_policy_lets_agents_in_from_everywhere(template: Any) -> None:
    rules = template("networkPolicy.enabled=true")["NetworkPolicy", NAME]["spec"]["ingress"]
    assert rules == [{"ports": [{"port": port, "protocol": "TCP"}]} for port in ("http", "coordinator")]


PLACED = [
    pytest.param("replicas=3", "replicas", 3, id="replicas"),
    pytest.param("priorityClassName=high", "template.spec.priorityClassName", "high", id="priority class"),
    pytest.param('nodeSelector={"a":"b"}', "template.spec.nodeSelector", {"a": "b"}, id="node selector"),
    pytest.param('tolerations=[{"key":"a"}]', "template.spec.tolerations", [{"key": "a"}], id="tolerations"),
    pytest.param('affinity={"podAffinity":{}}', "template.spec.affinity", {"podAffinity": {}}, id="affinity"),
    pytest.param('imagePullSecrets=[{"name":"a"}]', "template.spec.imagePullSecrets", [{"name": "a"}], id="secrets"),
    pytest.param('podAnnotations={"a":"b"}', "template.metadata.annotations", {"a": "b"}, id="annotations"),
    pytest.param("podLabels.a=b", "template.metadata.labels.a", "b", id="labels"),
    pytest.param('extraEnv=[{"name":"A"}]', "template.spec.containers.0.env.-1", {"name": "A"}, id="environment"),
    pytest.param("resources.requests.cpu=2", "template.spec.containers.0.resources.requests.cpu", 2, id="resources"),
    pytest.param(
        'topologySpreadConstraints=[{"maxSkew":2}]',
        "template.spec.topologySpreadConstraints",
        [{"maxSkew": 2}],
        id="spread",
    ),
]


_MAIN = "template.spec.containers.0"
PLACED += [
    pytest.param('extraEnvFrom=[{"secretRef":{"name":"a"}}]', f"{_MAIN}.envFrom.0.secretRef.name", "a", id="env from"),
    pytest.param('extraVolumes=[{"name":"a"}]', "template.spec.volumes.1.name", "a", id="volumes"),
    pytest.param(
        'extraVolumeMounts=[{"name":"a","mountPath":"/a"}]', f"{_MAIN}.volumeMounts.1.mountPath", "/a", id="mounts"
    ),
    pytest.param("strategy.type=Recreate", "strategy.type", "Recreate", id="strategy"),
    pytest.param("livenessProbe.periodSeconds=7", f"{_MAIN}.livenessProbe.periodSeconds", 7, id="liveness"),
    pytest.param("readinessProbe.periodSeconds=7", f"{_MAIN}.readinessProbe.periodSeconds", 7, id="readiness"),
    pytest.param("commonLabels.a=b", "template.metadata.labels.a", "b", id="labels of all"),
]


@pytest.mark.parametrize(("value", "path", "expected"), PLACED)
def test_deployment_has(template: Any, value: str, path: str, expected: object) -> None:
    assert at(template(value)[DEPLOYMENT]["spec"], path) == expected


def test_pods_spread_over_nodes_but_never_wait_for_it(template: Any) -> None:
    (spread,) = pod(template())["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"] == template()[DEPLOYMENT]["spec"]["selector"]


def test_labels_of_all_objects_replace_none_of_the_charts(template: Any) -> None:
    made = template('commonLabels={"team":"a","app.kubernetes.io/name":"b"}', "serviceMonitor.enabled=true")
    labelled = [one["metadata"]["labels"] for (kind, _), one in made.items() if kind != "Pod"]
    assert {(labels["team"], labels["app.kubernetes.io/name"]) for labels in labelled} == {("a", NAME)}
    labels = made[DEPLOYMENT]["spec"]["template"]["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/name"]) == ("a", NAME)


@pytest.mark.parametrize(
    ("release", "settings", "name"),
    [
        (NAME, [], NAME),
        ("train", [], f"train-{NAME}"),
        (f"my-{NAME}", [], f"my-{NAME}"),
        ("train", ["nameOverride=op"], "train-op"),
        ("train-op", ["nameOverride=op"], "train-op"),
        ("train", ["fullnameOverride=x", "nameOverride=op"], "x"),
    ],
)
def test_names_follow_the_release(helm: Callable[..., str], release: str, settings: list[str], name: str) -> None:
    text = helm("template", release, str(CHART), "--kube-version", KUBE_VERSION, *NAMED, *flags(*settings))
    made = objects(text)
    assert {("Deployment", name), ("Service", f"{name}-coordinator"), ("ServiceAccount", name)} <= made.keys()
    found = made["Deployment", name]["spec"]["template"]["spec"]
    assert found["serviceAccountName"] == name
    assert environment(found["containers"][0])["PYTORCHJOB_OPERATOR_COORDINATOR_SECRET"] == f"{name}-coordinator"


@pytest.mark.parametrize(("enabled", "there"), [("true", True), ("false", False)])
def test_a_chart_that_contains_it_can_leave_it_out(
    helm: Callable[..., str], tmp_path: Path, enabled: str, there: bool
) -> None:
    depends = {"name": NAME, "version": __version__, "condition": f"{NAME}.enabled"}
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [depends]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    shutil.copytree(CHART, tmp_path / "charts" / NAME)
    values = {"global": {"team": "a"}, NAME: {"image": {"repository": "own/operator"}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    switch = ("--set", f"{NAME}.enabled={enabled}")
    made = objects(helm("template", "platform", str(tmp_path), "--kube-version", KUBE_VERSION, *switch))
    assert (("Deployment", f"platform-{NAME}") in made) is there


def test_objects_of_ones_own_belong_to_the_release(template: Any) -> None:
    own = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ .Release.Name }}-own"}}'
    assert ("ConfigMap", f"{NAME}-own") in template(f"extraObjects=[{own}]")


@pytest.mark.parametrize(
    ("setting", "expected"), [("pdb.minAvailable=50%", "50%"), ("pdb.minAvailable=1", 1), ("pdb.minAvailable=0", 0)]
)
def test_a_budget_of_ones_own(template: Any, setting: str, expected: object) -> None:
    budget = template(setting)["PodDisruptionBudget", NAME]["spec"]
    assert (budget["minAvailable"], "maxUnavailable" in budget) == (expected, False)


@pytest.mark.parametrize("rules", ["relabelings", "metricRelabelings"])
@pytest.mark.parametrize(
    ("value", "key", "endpoints"),
    [
        ("serviceMonitor", ("ServiceMonitor", NAME), "endpoints"),
        ("podMonitor", ("PodMonitor", f"{NAME}-agents"), "podMetricsEndpoints"),
    ],
)
def test_a_monitor_takes_rules(template: Any, value: str, key: tuple[str, str], endpoints: str, rules: str) -> None:
    made = template(f"{value}.enabled=true", f'{value}.{rules}=[{{"action":"drop"}}]')
    assert at(made[key], f"spec.{endpoints}.0.{rules}") == [{"action": "drop"}]


EXTRA = [
    pytest.param([], ("PodDisruptionBudget", NAME), True, id="two replicas have a disruption budget"),
    pytest.param(["replicas=1"], ("PodDisruptionBudget", NAME), False, id="one replica must not block a drain"),
    pytest.param(["pdb.enabled=false"], ("PodDisruptionBudget", NAME), False, id="a budget can be left out"),
    pytest.param([], ("ServiceMonitor", NAME), False, id="no monitor unless asked"),
    pytest.param(["serviceMonitor.enabled=true"], ("ServiceMonitor", NAME), True, id="a monitor"),
    pytest.param([], ("NetworkPolicy", NAME), False, id="no network policy unless asked"),
    pytest.param(["networkPolicy.enabled=true"], ("NetworkPolicy", NAME), True, id="a network policy"),
    pytest.param(["serviceAccount.create=false"], ("ServiceAccount", NAME), False, id="somebody else's account"),
    pytest.param(["rbac.aggregate=false"], ("ClusterRole", f"{NAME}-edit"), False, id="no aggregated roles"),
    pytest.param(["rbac.create=false"], ("ClusterRole", NAME), False, id="somebody else's roles"),
    pytest.param(["fullnameOverride=other"], ("Deployment", "other"), True, id="another name"),
]


@pytest.mark.parametrize(("values", "key", "there"), EXTRA)
def test_chart_makes(template: Any, values: list[str], key: tuple[str, str], there: bool) -> None:
    assert (key in template(*values)) is there


def test_everything_is_off_when_roles_are_somebody_elses(template: Any) -> None:
    assert not [kind for kind, _ in template("rbac.create=false") if "Role" in kind]


def test_selectors_find_the_pods(template: Any) -> None:
    objects = template("networkPolicy.enabled=true", "podLabels.more=labels")
    labels = objects[DEPLOYMENT]["spec"]["template"]["metadata"]["labels"].items()
    for name in (NAME, COORDINATOR):
        assert objects["Service", name]["spec"]["selector"].items() <= labels
    for key in (DEPLOYMENT, ("PodDisruptionBudget", NAME)):
        assert objects[key]["spec"]["selector"]["matchLabels"].items() <= labels
    assert objects["NetworkPolicy", NAME]["spec"]["podSelector"]["matchLabels"].items() <= labels


def test_the_test_pod_is_no_backend_of_what_it_tests(template: Any) -> None:
    objects = template()
    labels = objects["Pod", f"{NAME}-test"]["metadata"]["labels"].items()
    assert not objects["Service", NAME]["spec"]["selector"].items() <= labels


@pytest.mark.parametrize("preserve", [False, True], ids=["plain", "preserving unknown fields"])
def test_the_resource_is_the_generated_one_and_stays(template: Any, preserve: bool) -> None:
    made = template(f"crds.preserveUnknown={str(preserve).lower()}", crd=True)[CRD]
    assert made["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    del made["metadata"]["labels"]
    assert made == build_crd(preserve)


def test_the_resource_goes_with_the_release_if_told_so(template: Any) -> None:
    assert "annotations" not in template("crds.keep=false", crd=True)[CRD]["metadata"]
    assert CRD not in template(crd=False)


def test_a_release_fits_into_its_secret(helm: Callable[..., str]) -> None:
    manifest = helm("template", "x", str(CHART), "--kube-version", KUBE_VERSION, *NAMED)
    files = [base64.b64encode(path.read_bytes()).decode() for path in CHART.rglob("*") if path.is_file()]
    release = json.dumps({"manifest": manifest, "files": files}).encode()
    # Helm keeps base64 of the compressed release; half of the limit is left for growth.
    assert len(base64.b64encode(gzip.compress(release))) < SECRET_LIMIT / 2
