"""What `kubectl get` prints of a job: texts that follow from its status."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator import shown_values
from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.model import ElasticStatus, GoodputSeconds, GoodputStatus, JobStatus, PyTorchJob
from pytorchjob_operator.model.status import ColumnsStatus
from pytorchjob_operator.plan import columns, make_plan
from tests.factories import at, make_job, observed, pods

ROUND = Report(round="3.7", phase=PhaseName.RUNNING, members=2, world=4)
RUN, OVER = "Running", "Succeeded"


def shown(job: PyTorchJob, *phases: str, report: Report | None = None) -> ColumnsStatus:
    seen = observed(job, *(pods(*phases) if phases else ()), seconds=100)
    status = make_plan(replace(seen, report=report, status_due=seen.now)).status or job.status
    assert status.columns is not None
    return status.columns


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param((), "0/2", id="no pod yet"),
        pytest.param(("Pending", RUN), "1/2", id="a pod that starts"),
        pytest.param((RUN, RUN), "2/2", id="all run"),
        pytest.param((OVER, RUN), "0/2", id="a job that has succeeded has none that runs"),
        pytest.param((RUN, OVER), "1/2", id="a worker that is done does not run"),
    ],
)
def test_ready(phases: tuple[str, ...], expected: str) -> None:
    assert shown(make_job(), *phases).ready == expected


def test_restarts_are_those_of_pods_and_those_inside_of_them() -> None:
    job = make_job()
    assert shown(job, RUN, RUN).restarts == 0
    status = job.status.model_copy(update={"restarts": 2, "elastic": ElasticStatus(restarts=3)})
    assert shown(job.model_copy(update={"status": status}), RUN, RUN).restarts == 5


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param({}, (None, None, None), id="a script that shows nothing"),
        pytest.param({"step": 5}, (None, None, None), id="of how many steps is unknown"),
        pytest.param(
            {"step": 5, "total": 10, "remaining": 11_400, "metrics": {"loss": 0.25184}},
            ("50%", "3h10m", "0.2518"),
            id="progress",
        ),
        pytest.param(
            {"percent": 3, "metrics": {"accuracy": 1.0, "train_loss": 12345.6}}, ("3%", None, "1.235e+04"), id="a loss"
        ),
    ],
)
def test_progress(report: dict[str, Any], expected: tuple[str | None, ...]) -> None:
    found = shown(make_job(), RUN, RUN, report=replace(ROUND, **report))
    assert (found.progress, found.eta, found.loss) == expected


def test_a_job_that_is_over_has_no_time_left() -> None:
    report = replace(ROUND, step=5, total=10, remaining=60)
    found = shown(make_job(), OVER, OVER, report=report)
    assert (found.progress, found.eta) == ("50%", None)


@pytest.mark.parametrize(
    ("ledger", "over", "expected"),
    [
        pytest.param({}, False, (None, None), id="no ledger"),
        pytest.param({"program_startup": 60.0}, False, (None, None), id="a job that has not trained"),
        pytest.param({"running": 90.0, "hung": 10.0, "step": 7}, False, ("90.0%", "10s"), id="a job that shows steps"),
        pytest.param({"running": 90.0, "hung": 10.0}, False, (None, "10s"), id="it grows unseen without steps"),
        pytest.param({"running": 90.0, "hung": 10.0}, True, ("90.0%", "10s"), id="until the job is over"),
        pytest.param({"program_startup": 60.0}, True, ("0.0%", "60s"), id="a job that never trained"),
    ],
)
def test_goodput(ledger: dict[str, Any], over: bool, expected: tuple[str | None, ...]) -> None:
    step, seconds = ledger.get("step"), GoodputSeconds(**{name: ledger[name] for name in ledger if name != "step"})
    stored = GoodputStatus(time=at(0), current="running", seconds=seconds, furthest_step=step) if ledger else None
    status = JobStatus(goodput=stored, completion_time=at(0) if over else None)
    found = columns.build(status, {}, running=not over)
    assert (found.running, found.lost) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_400, "3h10m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (187_200, "2d4h"),
        (691_200, "8d"),
        (2**53 - 1, "104249991374d"),
    ],
)
def test_durations(seconds: int, expected: str) -> None:
    assert shown_values.age(seconds) == expected
    ColumnsStatus(eta=shown_values.age(seconds))
