"""A real Prometheus scrapes a real operator and a few jobs: every panel shows data, and every alert can be evaluated.

kube-state-metrics cannot be built here from a Go module: a stand-in makes its series from the jobs in the API server.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from monitoring.__main__ import FILES
from monitoring.alerts import ALERTS
from monitoring.fleet import FLEET
from monitoring.job import JOB
from monitoring.job_series import custom_resource_state
from monitoring.panels import Dashboard, Kind, Panel
from monitoring.picture import Line, draw
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.apiserver.test_coordinator import Agents, fell, started
from tests.apiserver.test_metrics import crash, runs, succeed
from tests.monitoring.custom_resource_state import exposition, samples
from tests.monitoring.metric_names import metric_names
from tests.monitoring.prometheus import Exporter, Prometheus, Target
from tests.waiting import becomes

pytestmark = [pytest.mark.apiserver]

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
DRAW = "DRAW_DASHBOARDS"
"""The variable with which the test also draws the pictures of the docs."""
PLAIN: dict[str, Any] = {
    "template": {"spec": {"containers": [{"name": "pytorch", "image": "x", "command": ["python", "train.py"]}]}}
}
"""A role without an agent. Pods with an agent need a service account."""
SHOWN = "shown"
"""The job of the dashboard for one job."""


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    return make_jobs()


@pytest.fixture
async def agents(kubelet: Kubelet, jobs: Jobs) -> AsyncIterator[Agents]:
    some = Agents(kubelet, jobs)
    yield some
    some.leave()


@pytest.fixture
def operator(control_plane: ControlPlane, jobs: Jobs, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator with a coordinator, for the namespace of this test alone."""
    process = OperatorProcess.with_coordinator(control_plane, tmp_path, PYTORCHJOB_NAMESPACES=jobs.namespace)
    yield process.wait_ready()
    assert process.stop() == 0


@pytest.fixture
def exporter(jobs: Jobs) -> Iterator[Exporter]:
    """The stand-in for kube-state-metrics."""
    path = f"/apis/kubeflow.org/v1/namespaces/{jobs.namespace}/pytorchjobs"
    config = custom_resource_state()
    server = Exporter(lambda: exposition(samples(config, jobs.plane.read(path)["items"])))
    yield server
    server.stop()


@pytest.fixture
def prometheus(tmp_path: Path, operator: OperatorProcess, exporter: Exporter) -> Iterator[Prometheus]:
    """A Prometheus that scrapes both with the labels that the Prometheus operator adds."""
    pod = {
        "namespace": "pytorchjob-system",
        "pod": "pytorchjob-operator-0",
        "service": "pytorchjob-operator",
        "instance": "10.0.0.7:8080",
    }
    process = Prometheus(
        tmp_path,
        FILES / "alerts.yaml",
        Target("pytorchjob-operator", operator.address, pod),
        Target("kube-state-metrics", exporter.address, {"namespace": "monitoring"}, honor_labels=True),
    )
    yield process
    process.stop()


async def live(jobs: Jobs, kubelet: Kubelet, agents: Agents) -> None:
    """Run a job to each end, a job with a failing worker, and a job with every field of a status."""
    await runs(jobs, kubelet, "good", **PLAIN)
    await succeed(jobs, kubelet, "good")
    await runs(jobs, kubelet, "bad", restartPolicy="Never", **PLAIN)
    await kubelet.report("Failed", "bad-worker-0", exit_code=1)
    await becomes(lambda: jobs.condition("bad", "Failed"))
    await runs(jobs, kubelet, "shaky", restartPolicy="ExitCode", **PLAIN)
    await crash(jobs, kubelet, "shaky")
    jobs.kubectl("delete", "ptj", "bad", "good", "shaky")
    jobs.kubectl("delete", "pods", "--all")  # the garbage collector would, half a minute later
    await becomes(lambda: jobs.count("ptj", "pods") == 0)
    await started(jobs, kubelet)
    _, second, assigned = await agents.together()
    second.say(fell(assigned.round))
    await runs(jobs, kubelet, SHOWN, **PLAIN)
    reports(jobs)


def reports(jobs: Jobs) -> None:
    """Write the status of a job that has trained for a while. The operator would need minutes for it."""
    now = jobs.get(SHOWN)["status"]["startTime"]
    restart = {"time": now, "reason": "WorkersHang", "message": "rank 1 hangs at step 49"}
    status = {
        "elastic": {"round": "1.2", "members": 2, "worldSize": 4, "restarts": 1, "lastRestart": restart},
        "progress": {
            "step": 50,
            "total": 200,
            "percent": 25,
            "remainingSeconds": 300,
            "metrics": {"loss": 0.25},
            "time": now,
        },
    }
    jobs.kubectl("patch", "ptj", SHOWN, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def chosen(expr: str, dashboard: Dashboard, namespace: str) -> str:
    """The expression with the dashboard's choices made."""
    values = {"namespace": ".*" if dashboard is FLEET else namespace, "pytorchjob": SHOWN, "__rate_interval": "30s"}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


def empty(prometheus: Prometheus, namespace: str) -> list[str]:
    """The panels and choices without data."""
    queries = {
        f"{dashboard.title}: {panel.title}: {query.expr}": chosen(query.expr, dashboard, namespace)
        for dashboard in (FLEET, JOB)
        for panel in dashboard.panels
        for query in panel.queries
    }
    for dashboard in (FLEET, JOB):
        for variable in dashboard.variables:
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable.query)
            assert found is not None
            series, label = found.groups()
            queries[f"{dashboard.title}: ${variable.name}"] = (
                f"{chosen(series, dashboard, namespace)} unless on ({label}) vector(1)"
            )
    return [name for name, expr in queries.items() if not any(is_number(sample) for sample in prometheus.query(expr))]


def is_number(sample: dict[str, Any]) -> bool:
    return bool(sample["value"][1] != "NaN")


async def test_every_panel_shows_data(prometheus: Prometheus, jobs: Jobs, kubelet: Kubelet, agents: Agents) -> None:
    """The same jobs also give every alert the series that it evaluates."""
    # A rate counts from the first scrape on: no panel shows what happened before.
    await becomes(
        lambda: prometheus.query("pytorchjob_operator_time_to_running_seconds_count"), story=lambda: prometheus.log
    )
    await live(jobs, kubelet, agents)
    panels = partial(empty, prometheus, jobs.namespace)
    await becomes(lambda: panels() == [], story=lambda: "\n".join(panels()))
    used = sorted({name for alert in ALERTS for name in metric_names(alert.expr)})
    assert [name for name in used if not prometheus.query(name)] == []
    await becomes(lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, story=lambda: prometheus.log)
    assert {rule["name"] for rule in prometheus.rules()} == {alert.name for alert in ALERTS}
    await becomes(lambda: prometheus.firing() == {("PyTorchJobHangs", SHOWN)}, story=lambda: str(prometheus.firing()))
    if os.environ.get(DRAW):
        await trains(jobs)
        made = f"Series of a real run, drawn by `make pictures` on {time.strftime('%Y-%m-%d', time.gmtime())}"
        for dashboard in (FLEET, JOB):
            answers = {panel.title: lines(prometheus, panel, dashboard, jobs.namespace) for panel in dashboard.panels}
            (PICTURES / f"{dashboard.uid}.svg").write_text(draw(dashboard, answers, made))


async def trains(jobs: Jobs) -> None:
    """Report forty steps, about one in a second: a picture shows more than a moment."""
    for step in range(51, 91):
        progress = {
            "step": step,
            "percent": step // 2,
            "remainingSeconds": 200 - step,
            "metrics": {"loss": round(12.5 / step, 4)},
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        patch = json.dumps({"status": {"progress": progress}})
        jobs.kubectl("patch", "ptj", SHOWN, "--subresource=status", "--type=merge", "-p", patch)
        await asyncio.sleep(0.8)


def lines(prometheus: Prometheus, panel: Panel, dashboard: Dashboard, namespace: str) -> list[Line]:
    """The series of a panel: a table's now, others over the last minute. The picture's namespace is `training`."""
    at_once = panel.kind is Kind.TABLE
    return [
        Line(
            renamed(series["metric"], namespace),
            query.legend,
            tuple((at, float(value)) for at, value in series["values"]),
        )
        for query in panel.queries
        for series in prometheus.query_range(chosen(query.expr, dashboard, namespace), 0 if at_once else 60)
    ]


def renamed(labels: dict[str, str], namespace: str) -> dict[str, str]:
    return {name: "training" if value == namespace else value for name, value in labels.items()}
