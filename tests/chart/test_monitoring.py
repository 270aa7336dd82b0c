"""The chart's objects for monitoring: dashboards, alerts, the configuration of kube-state-metrics."""

import json
from typing import Any

import pytest
import yaml

from monitoring.__main__ import generated
from monitoring.alerts import ALERTS
from pytorchjob_operator import names
from tests.chart.support import NAME

pytestmark = pytest.mark.helm

OBJECTS = [
    pytest.param("dashboards.enabled", ("ConfigMap", f"{NAME}-dashboard-fleet"), id="the dashboard of all jobs"),
    pytest.param("dashboards.enabled", ("ConfigMap", f"{NAME}-dashboard-job"), id="the dashboard of one job"),
    pytest.param("prometheusRule.enabled", ("PrometheusRule", NAME), id="the alerts"),
    pytest.param("podMonitor.enabled", ("PodMonitor", f"{NAME}-agents"), id="the monitor of the agents"),
    pytest.param("kubeStateMetrics.enabled", ("ConfigMap", f"{NAME}-kube-state-metrics"), id="the series of jobs"),
]


def annotations(rule: Any, name: str) -> list[str]:
    return [alert["annotations"][name] for group in rule["spec"]["groups"] for alert in group["rules"]]


@pytest.mark.parametrize(("option", "key"), OBJECTS)
def test_only_if_asked_the_chart_makes(template: Any, option: str, key: tuple[str, str]) -> None:
    assert key not in template()
    assert template(f"{option}=true")[key]["metadata"]["namespace"] == "pytorchjob-system"


@pytest.mark.parametrize("name", ["fleet", "job"])
def test_grafanas_sidecar_finds_the_dashboard(template: Any, name: str) -> None:
    made = template("dashboards.enabled=true")["ConfigMap", f"{NAME}-dashboard-{name}"]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"][f"pytorchjob-{name}.json"]) == json.loads(generated()[f"pytorchjob-{name}.json"])


def test_another_sidecar_finds_another_label_and_the_folder(template: Any) -> None:
    chosen = ('dashboards.labels={"dashboard":"yes"}', 'dashboards.annotations={"folder":"Training"}')
    found = template("dashboards.enabled=true", *chosen)["ConfigMap", f"{NAME}-dashboard-job"]["metadata"]
    assert found["labels"]["dashboard"] == "yes"
    assert found["annotations"] == {"folder": "Training"}


def test_the_rule_has_the_generated_alerts(template: Any) -> None:
    made = template("prometheusRule.enabled=true", "prometheusRule.labels.release=prometheus")["PrometheusRule", NAME]
    assert made["spec"] == yaml.safe_load(generated()["alerts.yaml"])
    assert made["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize("address", ["https://books.test/x", "https://books.test/x/"])
def test_an_alert_links_to_its_page_at_the_given_address(template: Any, address: str) -> None:
    made = template("prometheusRule.enabled=true", f"prometheusRule.runbookUrl={address}")["PrometheusRule", NAME]
    assert annotations(made, "runbook_url") == [f"https://books.test/x/{alert.name}.md" for alert in ALERTS]


def test_kube_state_metrics_finds_its_configuration_in_its_namespace(template: Any) -> None:
    objects = template("kubeStateMetrics.enabled=true", "kubeStateMetrics.namespace=monitoring")
    made = objects["ConfigMap", f"{NAME}-kube-state-metrics"]
    assert made["metadata"]["namespace"] == "monitoring"
    assert yaml.safe_load(made["data"]["pytorchjobs.yaml"]) == yaml.safe_load(generated()["kube-state-metrics.yaml"])


def test_the_pod_monitor_finds_the_pods_of_jobs_by_their_label_and_port(template: Any) -> None:
    spec = template("podMonitor.enabled=true")["PodMonitor", f"{NAME}-agents"]["spec"]
    assert spec["selector"]["matchLabels"] == {names.LABEL_OPERATOR_NAME: names.CONTROLLER}
    assert spec["podTargetLabels"] == [names.LABEL_JOB_NAME]
    assert spec["namespaceSelector"] == {"any": True}
    assert [endpoint["port"] for endpoint in spec["podMetricsEndpoints"]] == ["agent-metrics"]


def test_the_pod_monitor_stays_in_the_watched_namespaces(template: Any) -> None:
    objects = template("podMonitor.enabled=true", 'watchNamespaces=["a","b"]')
    assert objects["PodMonitor", f"{NAME}-agents"]["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}
