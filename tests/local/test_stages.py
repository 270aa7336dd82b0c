import re
from pathlib import Path
from typing import Any

import pytest

from pytorchjob.local.stages import LocalStage, StageClock, brief, find_stage
from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.plan.members import starts_agents
from tests.local.jobs import job, role

AGENT = ["pytorchjob-agent", "run", "--", "train.py"]
PAGE = Path(__file__).parents[2] / "docs" / "local.md"


def parsed(command: list[str], kind: str = "Running", agent: dict[str, Any] | None = None) -> PyTorchJob:
    spec = job(Worker=role(command))
    spec["spec"]["agent"] = agent
    return PyTorchJob.model_validate({**spec, "status": {"conditions": [{"type": kind, "status": "True"}]}})


@pytest.mark.parametrize(
    ("phase", "stage"),
    [
        pytest.param(PhaseName.WAITING, LocalStage.STARTING, id="no agent has connected"),
        pytest.param(PhaseName.RENDEZVOUS, LocalStage.JOINING, id="agents wait for each other"),
        pytest.param(PhaseName.RUNNING, LocalStage.TRAINING, id="a round runs"),
        pytest.param(PhaseName.STALLED, LocalStage.WAITING, id="no round could be formed"),
        pytest.param(PhaseName.ENDED, LocalStage.ENDING, id="the training has ended, the replicas have not"),
    ],
)
def test_with_agents_the_stage_is_that_of_the_coordinator(phase: PhaseName, stage: LocalStage) -> None:
    assert find_stage(parsed(AGENT), Report(phase=phase), all_ready=True, started=False) is stage


@pytest.mark.parametrize(
    ("ready", "started", "stage"),
    [
        pytest.param(False, False, LocalStage.STARTING, id="a process is missing"),
        pytest.param(True, False, LocalStage.RUNNING, id="all processes run: nothing is known of any training"),
        pytest.param(False, True, LocalStage.RESTARTING, id="one ended and waits"),
    ],
)
@pytest.mark.parametrize("report", [None, Report()], ids=["no coordinator", "a coordinator that hears no agent"])
def test_without_agents_only_the_processes_are_known(
    ready: bool, started: bool, stage: LocalStage, report: Report | None
) -> None:
    assert find_stage(parsed(["bash", "train.sh"]), report, all_ready=ready, started=started) is stage


@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_the_end_wins(kind: str) -> None:
    running = Report(phase=PhaseName.RUNNING)
    assert find_stage(parsed(AGENT, kind), running, all_ready=True, started=True).value == kind


def test_agents_are_expected_by_the_command_or_the_spec() -> None:
    assert starts_agents(parsed(AGENT))
    assert starts_agents(parsed(["bash", "-c", "exec python -m pytorchjob_agent run -- x"]))
    assert starts_agents(parsed(["torchrun", "train.py"], agent={"inject": True}))
    assert not starts_agents(parsed(["python", "train.py"]))


def test_the_times_of_starting_and_joining_are_worth_a_line() -> None:
    clock = StageClock(10.0)
    lines = [
        clock.enter(stage, now)
        for stage, now in (
            (LocalStage.STARTING, 11.0),
            (LocalStage.JOINING, 12.1),
            (LocalStage.TRAINING, 12.4),
            (LocalStage.JOINING, 50.0),
            (LocalStage.TRAINING, 62.0),
        )
    ]
    assert lines == ["", "Starting 2.1 s", "Joining 0.3 s", "", "Joining 12 s"]
    assert clock.age(63.5) == 1.5


def test_a_short_time_has_a_tenth() -> None:
    assert (brief(0.34), brief(9.94), brief(12.4)) == ("0.3 s", "9.9 s", "12 s")


def test_the_page_has_a_row_for_each_stage_and_no_other() -> None:
    table = PAGE.read_text().partition("| stage | what happens |")[2].partition("\n\n")[0]
    names = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(names) == sorted(stage.value for stage in LocalStage)
