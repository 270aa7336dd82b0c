"""The real promtool evaluates when each alert fires and when it does not."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.__main__ import FILES
from monitoring.alerts import ALERTS
from tests.monitoring.prometheus import program

pytestmark = pytest.mark.apiserver

OP = 'pytorchjob_operator_{}{{namespace="a",pod="x",instance="i"}}'.format
ERRORS = 'pytorchjob_operator_reconcile_total{namespace="a",result="error"}'
LEADER = "pytorchjob_operator_leader"
EXPIRY = OP("coordinator_certificate_expiry_timestamp_seconds")
JOB = 'namespace="a",pytorchjob="x"'
STEPPED = f"pytorchjob_progress_timestamp_seconds{{{JOB}}}"
PODS, WORKERS = f"pytorchjob_pod_restarts{{{JOB}}}", f"pytorchjob_worker_restarts{{{JOB}}}"
DAYS = 86400


def condition(kind: str) -> str:
    return f'pytorchjob_condition{{{JOB},type="{kind}",reason="Any"}}'


def restarted(reason: str) -> str:
    return f'pytorchjob_last_restart_timestamp_seconds{{{JOB},reason="{reason}"}}'


# The alert, one value of each series for each minute (promtool's notation), the minute, and whether the alert fires.
CASES = [
    ("PyTorchJobOperatorDown", {}, 6, True, "no operator"),
    ("PyTorchJobOperatorDown", {}, 4, False, "a short gap"),
    ("PyTorchJobOperatorDown", {OP("leader"): "0x10"}, 6, False, "an operator that does not lead"),
    ("PyTorchJobOperatorWithoutLeader", {OP("leader"): "0x10", f'{LEADER}{{namespace="a"}}': "0x10"}, 5, True, "none"),
    ("PyTorchJobOperatorWithoutLeader", {OP("leader"): "0x10", f'{LEADER}{{namespace="a"}}': "1x10"}, 5, False, "one"),
    ("PyTorchJobOperatorWithoutLeader", {OP("leader"): "1x4 0 1x9"}, 5, False, "a change of the leader"),
    ("PyTorchJobOperatorWatchStale", {OP("watch_last_contact_age_seconds"): "0+60x10"}, 5, True, "a silent watch"),
    ("PyTorchJobOperatorWatchStale", {OP("watch_last_contact_age_seconds"): "29x10"}, 5, False, "a quiet watch"),
    ("PyTorchJobOperatorQueueGrows", {OP("workqueue_depth"): "20x30"}, 20, True, "a long queue"),
    ("PyTorchJobOperatorQueueGrows", {OP("workqueue_depth"): "20x8 0 20x8 0 20x8"}, 20, False, "empty at times"),
    ("PyTorchJobOperatorFailsToReconcile", {ERRORS: "0+12x40"}, 25, True, "an error every five seconds"),
    ("PyTorchJobOperatorFailsToReconcile", {ERRORS: "0+1x40"}, 25, False, "an error a minute"),
    ("PyTorchJobCoordinatorRefuses", {OP("coordinator_refusals"): "0+2x30"}, 20, True, "30 refusals"),
    ("PyTorchJobCoordinatorRefuses", {OP("coordinator_refusals"): "500x30"}, 20, False, "refusals long ago"),
    ("PyTorchJobCoordinatorRefuses", {OP("coordinator_refusals"): "500x9 0x20"}, 20, False, "a new leader"),
    ("PyTorchJobCoordinatorCertificateExpires", {EXPIRY: f"{10 * DAYS}x200"}, 120, True, "ten days left"),
    ("PyTorchJobCoordinatorCertificateExpires", {EXPIRY: f"{60 * DAYS}x200"}, 120, False, "60 days left"),
    ("PyTorchJobCoordinatorCertificateExpires", {EXPIRY: "0x200"}, 120, False, "no coordinator"),
    ("PyTorchJobCoordinatorDefect", {OP("coordinator_invariant_violations"): "0x10 1x20"}, 20, True, "a violation"),
    ("PyTorchJobCoordinatorDefect", {OP("coordinator_invariant_violations"): "0x30"}, 20, False, "none so far"),
    ("PyTorchJobPending", {condition("Created"): "1x60"}, 40, True, "never ran"),
    ("PyTorchJobPending", {condition("Created"): "1x60", condition("Running"): "1x9 0x60"}, 50, True, "ran before"),
    ("PyTorchJobPending", {condition("Created"): "1x60"}, 20, False, "waits for 20 minutes"),
    ("PyTorchJobPending", {condition("Created"): "1x60", condition("Running"): "1x60"}, 40, False, "runs"),
    ("PyTorchJobPending", {condition("Created"): "1x60", condition("Suspended"): "1x60"}, 40, False, "suspended"),
    ("PyTorchJobPending", {condition("Created"): "1x60", condition("Failed"): "1x60"}, 40, False, "failed"),
    ("PyTorchJobRestartLoop", {PODS: "0+1x40", WORKERS: "0x40"}, 35, True, "a pod a minute"),
    ("PyTorchJobRestartLoop", {PODS: "0x40", WORKERS: "0+1x40"}, 35, True, "a worker a minute"),
    ("PyTorchJobRestartLoop", {PODS: "0x9 1x40", WORKERS: "0x9 1x40"}, 35, False, "one of each"),
    ("PyTorchJobRestartLoop", {PODS: "90x60", WORKERS: "90x60"}, 35, False, "many long ago"),
    ("PyTorchJobProgressStalled", {STEPPED: "0x60", condition("Running"): "1x60"}, 40, True, "no new step"),
    ("PyTorchJobProgressStalled", {STEPPED: "0+60x60", condition("Running"): "1x60"}, 40, False, "a step a minute"),
    ("PyTorchJobProgressStalled", {STEPPED: "0x60", condition("Running"): "0x60"}, 40, False, "over"),
    ("PyTorchJobProgressStalled", {condition("Running"): "1x60"}, 40, False, "a script that reports nothing"),
    ("PyTorchJobHangs", {restarted("WorkersHang"): "600x60"}, 15, True, "a hang five minutes ago"),
    ("PyTorchJobHangs", {restarted("WorkersHang"): "600x60"}, 40, False, "a hang half an hour ago"),
    ("PyTorchJobHangs", {restarted("WorkerFailed"): "600x60"}, 15, False, "another failure"),
]


def cases() -> Iterator[Any]:
    for alert, series, minute, fires, text in CASES:
        yield pytest.param(alert, series, minute, fires, id=f"{alert}: {text}")


@pytest.mark.parametrize(("alert", "series", "minute", "fires"), list(cases()))
def test_an_alert_fires(tmp_path: Path, alert: str, series: dict[str, str], minute: int, fires: bool) -> None:
    firing = f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else []
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": f"{minute}m", "exp_samples": samples}],
    }
    path = tmp_path / "test.yaml"
    rules = str(FILES / "alerts.yaml")
    path.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "does not fire"])
def test_every_alert_has_a_case_in_which_it(fires: bool) -> None:
    assert {alert for alert, _, _, expected, _ in CASES if expected is fires} == {alert.name for alert in ALERTS}


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    command = [program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", FILES / "alerts.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
