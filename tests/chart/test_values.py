"""The chart's values: checked by their schema, listed in the README, in step with the distribution."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_agent import __version__
from tests.chart.conftest import KUBE_VERSION, NAMED, flags

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/pytorchjob-operator"
FREE = {"global"}


def schemas(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, one in schema.get("properties", {}).items():
        yield f"{path}{key}", one
        yield from schemas(one, f"{path}{key}.")


def keys(values: Any, known: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, one in values.items():
        yield f"{path}{key}"
        if isinstance(one, dict) and "properties" in known.get(f"{path}{key}", {}):
            yield from keys(one, known, f"{path}{key}.")


def test_values_and_schema_have_the_same_keys() -> None:
    known = dict(schemas(json.loads((CHART / "values.schema.json").read_text())))
    assert set(known) == set(keys(yaml.safe_load((CHART / "values.yaml").read_text()), known))


def test_every_level_of_the_schema_is_closed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_levels = {
        path for path, one in schemas(schema) if "properties" in one and one.get("additionalProperties", True)
    }
    assert schema["additionalProperties"] is False
    assert open_levels == FREE


def test_versions_are_those_of_the_distribution() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    component = yaml.safe_load((ROOT / "manifests/image/kustomization.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert [image["newTag"] for image in component["images"]] == [__version__]


REFUSED = [
    pytest.param("replcas=3", "additional properties 'replcas'", id="an unknown key"),
    pytest.param("image.tga=dev", "at '/image': additional properties 'tga'", id="an unknown key further down"),
    pytest.param("replicas=-1", "at '/replicas'", id="fewer than no replicas"),
    pytest.param("replicas=many", "at '/replicas'", id="replicas that are no number"),
    pytest.param("image.digest=sha256:abc", "at '/image/digest'", id="half a digest"),
    pytest.param("image.pullPolicy=always", "at '/image/pullPolicy'", id="a pull policy in lower case"),
    pytest.param("gangScheduling.scheduler=a b", "at '/gangScheduling/scheduler'", id="a scheduler with a space"),
    pytest.param("coordinator.port=80", "at '/coordinator/port'", id="a port for root alone"),
    pytest.param("coordinator.port=8080", "at '/coordinator/port'", id="the port of the metrics for agents too"),
    pytest.param("coordinator.tls=maybe", "at '/coordinator/tls'", id="TLS that is neither on nor off"),
    pytest.param("log.level=LOUD", "at '/log/level'", id="an unknown log level"),
    pytest.param("log.format=xml", "at '/log/format'", id="an unknown log format"),
    pytest.param("watchNamespaces=training", "at '/watchNamespaces'", id="one namespace that is no list"),
    pytest.param('watchNamespaces=["Training"]', "at '/watchNamespaces/0'", id="a namespace in upper case"),
    pytest.param('watchNamespaces=["a","a"]', "at '/watchNamespaces'", id="a namespace twice"),
    pytest.param('accelerators=["npu"]', "at '/accelerators/0'", id="a device without its vendor's domain"),
    pytest.param("agent.default=Always", "at '/agent/default'", id="an unknown default"),
    pytest.param('nodeConditions=["GpuBad"]', "at '/nodeConditions/0'", id="a condition without its status"),
    pytest.param("crds.keep=maybe", "at '/crds/keep'", id="a switch that is neither on nor off"),
    pytest.param("resources.limit.memory=1Gi", "at '/resources': additional properties 'limit'", id="a misspelt limit"),
    pytest.param(
        'extraEnv=[{"name":"A","value":1}]', "at '/extraEnv/0/value': got number, want string", id="a number as text"
    ),
    pytest.param(
        'extraEnv=[{"name":"A","vlaue":"1"}]', "at '/extraEnv/0': additional properties 'vlaue'", id="a misspelt value"
    ),
    pytest.param("podLabels.a=1", "at '/podLabels/a'", id="a label that is a number"),
    pytest.param(
        "prometheusRule.runbookUrl=books.test", "at '/prometheusRule/runbookUrl'", id="a host without a scheme"
    ),
]


@pytest.mark.helm
@pytest.mark.parametrize(("value", "words"), REFUSED)
def test_refuses(helm: Callable[..., str], value: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        helm("template", "x", str(CHART), "--kube-version", KUBE_VERSION, *NAMED, *flags(value))


@pytest.mark.helm
def test_an_unknown_key_is_refused_on_every_level_and_each_is_named(helm: Callable[..., str]) -> None:
    known = dict(schemas(json.loads((CHART / "values.schema.json").read_text())))
    levels = ["", *(f"{path}." for path, schema in known.items() if "properties" in schema and path not in FREE)]
    assert len(levels) > 15
    unknown = ",".join(f"{level}unknown{number}=1" for number, level in enumerate(levels))
    with pytest.raises(RuntimeError) as refusal:
        helm("template", "x", str(CHART), "--kube-version", KUBE_VERSION, *NAMED, "--set", unknown)
    for number, level in enumerate(levels):
        place = f"at '{''.join(f'/{key}' for key in level.split('.') if key)}'"
        assert f"{place}: additional properties 'unknown{number}' not allowed" in str(refusal.value), level


CONTRADICTION = ("gangScheduling.enabled=false", "gangScheduling.scheduler=volcano")


@pytest.mark.helm
def test_a_scheduler_for_all_jobs_without_the_right_to_its_pod_groups_is_refused(template: Any) -> None:
    words = "is volcano, but gangScheduling.enabled is false, so jobs would wait .*: set gangScheduling.enabled=true"
    with pytest.raises(RuntimeError, match=words):
        template(*CONTRADICTION)


@pytest.mark.helm
@pytest.mark.parametrize(
    "values", [[CONTRADICTION[0]], [CONTRADICTION[1]], [*CONTRADICTION, "rbac.create=false"]], ids=" ".join
)
def test_it_is_not_refused_where_the_right_is_not_missing(template: Any, values: list[str]) -> None:
    assert template(*values)
