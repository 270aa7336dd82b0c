"""docs/resource.md has every field of a job and every rule."""

from pathlib import Path

import pytest

from pytorchjob_operator.crd.page import insert, reference
from pytorchjob_operator.model.rules import RULES

PAGE = Path(__file__).parents[2] / "docs/resource.md"


def test_the_page_is_generated() -> None:
    text = PAGE.read_text()
    assert insert(text) == text


@pytest.mark.parametrize(
    "row",
    [
        pytest.param("| `spec.nprocPerNode` | string |  |", id="a text"),
        pytest.param("| `spec.pytorchReplicaSpecs.*.replicas` | integer, 1 to 10000 | `1` |", id="of every role"),
        pytest.param("| `spec.runPolicy.suspend` | boolean | `false` |", id="a default"),
        pytest.param("| `spec.runPolicy.cleanPodPolicy` | `None`, `Running`, `All` |  |", id="values"),
        pytest.param("| `spec.agent.hang.logRules[].pattern` | string |  |", id="of an element of a list"),
        pytest.param("| `spec.agent.preload` | list of string |  |", id="a list"),
        pytest.param("| `status.elastic.lastRestart.reason` | string |  |", id="of the status"),
    ],
)
def test_a_field_has_a_row(row: str) -> None:
    assert f"\n{row}" in reference()


def test_every_field_has_a_meaning() -> None:
    rows = [line for line in reference().splitlines() if line.startswith(("| `spec.", "| `status."))]
    fields = [row for row in rows if row.count(" | ") >= 3]
    assert len(fields) > 100
    assert [row for row in fields if row.endswith("|  |")] == []


def test_every_rule_is_there() -> None:
    assert [rule.message for rule in RULES if rule.message.replace("|", "\\|") not in reference()] == []


def test_the_pod_template_is_kubernetes_own() -> None:
    assert "| `spec.pytorchReplicaSpecs.*.template` |" in reference()
    assert ".template." not in reference().partition("## Rules")[0]
