"""The page of the resource has a row for each field of a job, with its meaning."""

import pytest

from pytorchjob_operator.crd.page import reference


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


def test_the_pod_template_is_kubernetes_own() -> None:
    assert "| `spec.pytorchReplicaSpecs.*.template` |" in reference()
    assert ".template." not in reference().partition("## Rules")[0]
