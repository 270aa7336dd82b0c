"""docs/monitoring.md has every metric with its type and labels, every cause, and every reason: no more and no less."""

import re
from pathlib import Path

from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.app.metrics import JobCount
from pytorchjob_operator.app.process import OperatorProcess
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.names import LossCause, Reason
from pytorchjob_operator.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
BOUNDS = {"le"}


def table(header: str) -> dict[str, list[str]]:
    """The rows of the table whose first cell is this: the cells behind the first, by the name in it."""
    lines = iter(PAGE.partition(f"\n| {header} |")[2].split("\n")[2:])
    rows: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("| "):
            return rows
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.strip("`")] = cells
    return rows


async def published() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of every metric that a running operator has."""
    process = OperatorProcess(Settings(), ApiEndpoint("http://127.0.0.1:1"))
    process._publish()
    metrics = process.metrics
    metrics.on_job("ns", JobCount.CREATED)
    metrics.on_namespace("ns")
    metrics.on_pod_restart("ns", LossCause.ERROR)
    metrics.on_request("get", "pods", 200, 0.1)
    metrics.on_reconcile("success", 0.1)
    metrics.on_round_event("ns", TrainingReason.ROUND_STARTED)
    suffix = {"counter": "_total", "info": "_info"}
    families = [family for family in metrics.registry.collect() if not family.name.startswith("process_")]
    labels = {
        family.name: {name for sample in family.samples for name in sample.labels} - BOUNDS for family in families
    }
    return {family.name + suffix.get(family.type, ""): (family.type, labels[family.name]) for family in families}


async def test_every_metric_is_there_with_its_type_and_labels() -> None:
    rows = {name: (cells[0], set(re.findall(r"`(\w+)`", cells[1]))) for name, cells in table("metric").items()}
    assert rows == await published()


def test_every_cause_is_there() -> None:
    assert set(table("cause")) == {*LossCause}


def test_every_reason_is_there() -> None:
    assert set(table("reason | where")) == {*Reason}


def test_every_reason_of_the_rounds_is_there() -> None:
    after = PAGE.partition("\n### Jobs with a coordinator")[2]
    assert {line.split("`")[1] for line in after.partition("\n### ")[0].split("\n") if line.startswith("| `")} == {
        *TrainingReason
    }
