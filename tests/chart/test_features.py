"""What users expect of a chart beside the Deployment, which tests/chart/test_template.py has."""

from typing import Any

import pytest
import yaml

from tests.chart.conftest import CHART, tool
from tests.chart.conftest import output as run_program
from tests.chart.support import NAME, at

pytestmark = pytest.mark.helm

TEST = ("Pod", f"{NAME}-test")
MONITOR = ("ServiceMonitor", NAME)
POLICY = ("NetworkPolicy", NAME)
BUDGET = ("PodDisruptionBudget", NAME)


PLACES = [
    pytest.param("service.annotations.a=b", ("Service", NAME), "metadata.annotations.a", "b", id="Service annotations"),
    pytest.param(
        "serviceAccount.annotations.a=b",
        ("ServiceAccount", NAME),
        "metadata.annotations.a",
        "b",
        id="ServiceAccount annotations, for a cloud's identity",
    ),
    pytest.param("serviceAccount.name=own", ("ServiceAccount", "own"), "metadata.name", "own", id="account name"),
    pytest.param("serviceMonitor.labels.a=b", MONITOR, "metadata.labels.a", "b", id="monitor labels"),
    pytest.param("serviceMonitor.interval=15s", MONITOR, "spec.endpoints.0.interval", "15s", id="monitor interval"),
    pytest.param("replicas=3", MONITOR, "spec.endpoints.0.path", "/metrics", id="what the monitor scrapes"),
    pytest.param("replicas=3", BUDGET, "spec.maxUnavailable", 1, id="a drain takes one pod at a time"),
    pytest.param('imagePullSecrets=[{"name":"a"}]', TEST, "spec.imagePullSecrets", [{"name": "a"}], id="test: secrets"),
    pytest.param('nodeSelector={"a":"b"}', TEST, "spec.nodeSelector", {"a": "b"}, id="test: node selector"),
    pytest.param('tolerations=[{"key":"a"}]', TEST, "spec.tolerations", [{"key": "a"}], id="test: tolerations"),
    pytest.param(
        "resources.limits.memory=1Gi", TEST, "spec.containers.0.resources.limits.memory", "1Gi", id="test: size"
    ),
    pytest.param("replicas=2", TEST, "metadata.annotations", {}, id="test: a hook that cleans up"),
]
HOOK = {"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"}


@pytest.mark.parametrize(("value", "key", "path", "expected"), PLACES)
def test_a_value_arrives(template: Any, value: str, key: tuple[str, str], path: str, expected: object) -> None:
    objects = template(value, "serviceMonitor.enabled=true", "networkPolicy.enabled=true")
    assert at(objects[key], path) == (expected or HOOK)


def test_the_monitor_finds_the_service_and_its_port(template: Any) -> None:
    objects = template("serviceMonitor.enabled=true")
    service, monitor = objects["Service", NAME], objects[MONITOR]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_the_network_policy_lets_out_only_names_and_the_api_server(template: Any) -> None:
    rules = template("networkPolicy.enabled=true", "networkPolicy.apiServerPorts=[6443]")[POLICY]["spec"]["egress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == [53, 53, 6443]


@pytest.mark.parametrize("value", ["topologySpreadConstraints=[]", "affinity={}", "priorityClassName="])
def test_an_empty_value_is_the_default(template: Any, value: str) -> None:
    assert template(value) == template()


def test_the_operator_never_gets_more_than_its_account(template: Any) -> None:
    subjects = [binding["subjects"] for (kind, _), binding in template().items() if kind.endswith("RoleBinding")]
    assert len(subjects) >= 3
    assert {(subject["kind"], subject["name"]) for found in subjects for subject in found} == {("ServiceAccount", NAME)}


def test_the_chart_names_what_a_catalogue_shows() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == ">=1.31.0-0"
    assert chart["icon"].startswith("data:image/svg+xml;base64,")
    notes = chart["annotations"]
    for key in ("category", "license", "operator", "operatorCapabilities", "crds", "crdsExamples", "changes"):
        assert notes[f"artifacthub.io/{key}"]
    assert [definition["name"] for definition in yaml.safe_load(notes["artifacthub.io/crds"])] == [
        "pytorchjobs.kubeflow.org"
    ]


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="incompatible with Kubernetes"):
        run_program(
            tool("helm"), "template", "x", str(CHART), "--kube-version", "1.28.0", "--set", "image.repository=a"
        )
