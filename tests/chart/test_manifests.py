"""The kustomize manifests install what the chart's defaults install."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.chart.conftest import ROOT, output, tool
from tests.chart.support import NAME

pytestmark = pytest.mark.helm

INSTANCE = "app.kubernetes.io/instance"
OF_HELM_ALONE = {("Pod", f"{NAME}-test")}
OF_KUSTOMIZE_ALONE = {("Namespace", "pytorchjob-system")}


def bare(value: Any) -> Any:
    """Without what only tells one installer from the other."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if key != INSTANCE}
    return [bare(item) for item in value] if isinstance(value, list) else value


def content(one: Any) -> Any:
    # kubectl's kustomize does not know that the kinds of a policy have no namespace; the API server drops it.
    kept = ("name",) if one["kind"].startswith("ValidatingAdmissionPolicy") else ("name", "namespace")
    metadata = {key: value for key, value in one["metadata"].items() if key in kept}
    aggregate = {key for key in one["metadata"].get("labels", {}) if "aggregate-to" in key}
    return {**bare(one), "metadata": metadata, "aggregate": aggregate}


@pytest.mark.parametrize("folder", ["base", "overlays/standalone", "overlays/namespaced"])
def test_without_an_image_it_refuses_and_names_the_remedy(folder: str) -> None:
    with pytest.raises(RuntimeError, match="no image is named: see manifests/image/kustomization"):
        output(tool("kubectl"), "kustomize", str(ROOT / "manifests" / folder))


def test_base_is_the_charts_defaults(template: Any, kustomize: Callable[[str], Any]) -> None:
    chart, base = template(crd=True), kustomize("base")
    assert set(base) - OF_KUSTOMIZE_ALONE == set(chart) - OF_HELM_ALONE
    for key in set(base) - OF_KUSTOMIZE_ALONE:
        assert content(base[key]) == content(chart[key]), key


def test_namespaced_is_the_chart_with_one_namespace(template: Any, kustomize: Callable[[str], Any]) -> None:
    chart, overlay = template('watchNamespaces=["training"]', crd=True), kustomize("overlays/namespaced")
    assert set(overlay) - OF_KUSTOMIZE_ALONE == set(chart) - OF_HELM_ALONE
    for key in set(overlay) - OF_KUSTOMIZE_ALONE - {("Deployment", NAME)}:
        assert content(overlay[key]) == content(chart[key]), key


def test_namespaced_tells_the_operator_its_namespace(kustomize: Callable[[str], Any]) -> None:
    pod = kustomize("overlays/namespaced")["Deployment", NAME]["spec"]["template"]["spec"]
    env = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    assert env["PYTORCHJOB_NAMESPACES"] == "training"


def test_standalone_is_base_in_another_namespace(kustomize: Callable[[str], Any]) -> None:
    base, overlay = kustomize("base"), kustomize("overlays/standalone")
    assert set(overlay) == set(base) - OF_KUSTOMIZE_ALONE
    for key, one in overlay.items():
        moved = str(content(base[key])).replace("'pytorchjob-system'", "'kubeflow'")
        assert str(content(one)) == moved, key


def test_the_namespace_enforces_pod_security(kustomize: Callable[[str], Any]) -> None:
    labels = kustomize("base")["Namespace", "pytorchjob-system"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
