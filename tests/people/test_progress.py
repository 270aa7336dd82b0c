"""`pytorchjob progress`: the values of a job, as lines, as a bar and for programs."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from pytorchjob.cli import main
from pytorchjob.screen import progress as screen
from pytorchjob.view.progress import UNREPORTED, WITHOUT_AGENT, JobProgress, progress_view, why_none
from tests.people.fake_cluster import NOW, FakeCluster, a_job, timestamp

FULL = {
    "step": 420,
    "total": 1000,
    "percent": 42,
    "remainingSeconds": 200,
    "stepsPerSecond": 2.9,
    "metrics": {"accuracy": 0.9, "loss": 0.25184},
    "time": timestamp(),
}


def job(state: str = "Running", **progress: Any) -> dict[str, Any]:
    made = a_job("digits", state=state)
    made["status"]["progress"] = progress
    return made


def view(state: str = "Running", seconds: float = 0, **progress: Any) -> JobProgress:
    return progress_view(job(state, **progress), NOW + timedelta(seconds=seconds))


def run(*args: str, cluster: FakeCluster) -> Result:
    return CliRunner().invoke(main, ["progress", *args], obj=lambda options: cluster)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        pytest.param(
            view(**FULL), "digits: Running, 42%, step 420/1000, loss 0.2518, 2.9 steps/s, 3m20s left", id="all is known"
        ),
        pytest.param(
            view(seconds=100, **FULL),
            "digits: Running, 42%, step 420/1000, loss 0.2518, 2.9 steps/s, 100s left",
            id="the time runs on between two writes",
        ),
        pytest.param(
            view(seconds=600, **FULL),
            "digits: Running, 42%, step 420/1000, loss 0.2518, 2.9 steps/s, 0s left, recorded 10m ago",
            id="nothing new for ten minutes",
        ),
        pytest.param(view(step=7, stepsPerSecond=0.5), "digits: Running, step 7, 2 s/step", id="steps alone"),
        pytest.param(view(percent=3), "digits: Running, 3%", id="a share alone"),
        pytest.param(view(metrics={"train_loss": 2.0}), "digits: Running, loss 2", id="a loss alone"),
        pytest.param(view(metrics={"accuracy": 2.0}), "digits: Running, ", id="another metric alone"),
        pytest.param(view(), "digits: Running, shows no progress", id="nothing"),
        pytest.param(
            view("Succeeded", seconds=600, **FULL),
            "digits: Succeeded, 42%, step 420/1000, loss 0.2518",
            id="an end has no speed and no time",
        ),
        pytest.param(progress_view(a_job("digits", state=""), NOW), "digits: New, shows no progress", id="a new job"),
        pytest.param(progress_view({"status": {"progress": 5}}, NOW), ": New, shows no progress", id="no object"),
        pytest.param(view(step="7", metrics=[], percent=True), "digits: Running, shows no progress", id="wrong types"),
    ],
)
def test_a_line(shown: JobProgress, expected: str) -> None:
    assert screen.line(shown) == expected.removesuffix(", ")


@pytest.mark.parametrize(
    ("state", "progress", "line"),
    [
        ("Running", {"step": 7}, "digits: Running, step 7, without a, b, c"),
        ("Running", {}, "digits: Running, shows no progress, without a, b, c"),
        ("Failed", {"step": 7}, "digits: Failed, step 7"),
    ],
)
def test_a_round_that_goes_on_without_pods_names_them(state: str, progress: dict[str, Any], line: str) -> None:
    made = job(state, **progress)
    made["status"]["elastic"] = {"without": ["a", "b", "c", "d"]}
    shown = progress_view(made, NOW)
    assert screen.line(shown) == line
    assert screen.values(shown)["without"] == ([] if shown.ended else ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("progress", "share"),
    [({"step": 1, "total": 8, "percent": 12}, 0.125), ({"percent": 12}, 0.12), ({"step": 1}, None), ({}, None)],
)
def test_the_share(progress: dict[str, int], share: float | None) -> None:
    assert view(**progress).share == share


def test_a_bar_has_the_same_values() -> None:
    out = io.StringIO()
    Console(file=out, width=160).print(screen.bar(view(**FULL)))
    assert "━" in out.getvalue()
    assert out.getvalue().rstrip().endswith("42%, step 420/1000, loss 0.2518, 2.9 steps/s, 3m20s left")


def test_a_bar_without_values_has_the_reason_also_on_a_narrow_terminal() -> None:
    out = io.StringIO()
    Console(file=out, width=60).print(screen.bar(view(), UNREPORTED))
    assert " ".join(out.getvalue().split()) == f"digits Running shows no progress: {UNREPORTED}"


def test_values_for_programs() -> None:
    found = run("digits", "-o", "json", cluster=FakeCluster(job(**FULL)))
    shown = json.loads(found.stdout)
    assert {name: shown[name] for name in ("job", "state", "step", "total", "percent", "loss", "ended")} == {
        "job": "digits",
        "state": "Running",
        "step": 420,
        "total": 1000,
        "percent": 42,
        "loss": 0.25184,
        "ended": False,
    }
    assert found.exit_code == 0


def test_a_pipe_gets_a_line_for_each_change_until_the_end() -> None:
    cluster = FakeCluster(job(step=1, total=10, percent=10))
    cluster.script(
        lambda: cluster.put(job(step=1, total=10, percent=10, stepsPerSecond=3.0)),
        lambda: cluster.put(job(step=5, total=10, percent=50)),
        lambda: cluster.put(job("Succeeded", step=10, total=10, percent=100)),
    )
    found = run("digits", cluster=cluster)
    assert found.stdout.splitlines() == [
        "digits: Running, 10%, step 1/10",
        "digits: Running, 50%, step 5/10",
        "digits: Succeeded, 100%, step 10/10",
    ]
    assert found.exit_code == 0


def test_a_job_that_fails_ends_with_status_1_and_the_next_step() -> None:
    cluster = FakeCluster(job(percent=10))
    cluster.script(lambda: cluster.put(job("Failed", percent=10)))
    found = run("digits", cluster=cluster)
    assert found.exit_code == 1
    assert found.stderr.splitlines() == ["next: pytorchjob status digits"]


def test_a_job_that_is_deleted_is_reported() -> None:
    cluster = FakeCluster(job(percent=10))
    cluster.script(lambda: cluster.remove("PyTorchJob", "digits"))
    found = run("digits", cluster=cluster)
    assert (found.exit_code, found.stderr) == (1, "error: the job digits was deleted\n")


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        pytest.param(["digit"], 4, "did you mean digits?", id="no such job"),
        pytest.param(["digits", "-o", "xml"], 2, "xml", id="another format"),
        pytest.param([], 2, "JOB", id="no job"),
    ],
)
def test_what_is_wrong(args: list[str], status: int, words: str) -> None:
    found = run(*args, cluster=FakeCluster(job()))
    assert found.exit_code == status
    assert words in found.stderr


def test_a_job_without_progress_has_a_next_step() -> None:
    found = run("digits", "--once", cluster=FakeCluster(job()))
    assert found.stdout == "digits: Running, shows no progress\n"
    assert "docs/elastic.md" in found.stderr


def with_command(*command: str, state: str = "Running", since: float = -3600, **progress: Any) -> dict[str, Any]:
    made = job(state, **progress)
    made["status"]["conditions"][0]["lastTransitionTime"] = timestamp(since)
    for role in made["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["command"] = list(command)
    return made


AGENT = ("pytorchjob-agent", "run", "--", "train.py")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(with_command("torchrun", "train.py"), WITHOUT_AGENT, id="torchrun"),
        pytest.param(with_command("/opt/venv/bin/python3.12", "train.py"), WITHOUT_AGENT, id="python"),
        pytest.param(with_command("torchrun", "x.py", since=-5), WITHOUT_AGENT, id="torchrun, from its first second"),
        pytest.param(with_command("torchrun", "x.py", state="Succeeded"), WITHOUT_AGENT, id="torchrun, after its end"),
        pytest.param(with_command("torchrun", "x.py", step=3), "", id="steps that something reported"),
        pytest.param(with_command(*AGENT), UNREPORTED, id="the agent, and no step for an hour"),
        pytest.param(with_command(*AGENT, since=-5), "", id="the agent, which has just started"),
        pytest.param(with_command(*AGENT, state="Succeeded"), "", id="the agent, after the end"),
        pytest.param(with_command("python", "-m", "pytorchjob_agent", "run"), UNREPORTED, id="the agent's module"),
        pytest.param(with_command("bash", "train.sh"), UNREPORTED, id="a shell script, which may start the agent"),
        pytest.param(with_command(), UNREPORTED, id="the image's own command"),
        pytest.param(a_job("digits", state=""), "", id="a job that no operator has seen"),
    ],
)
def test_why_there_is_no_progress(found: dict[str, Any], why: str) -> None:
    assert why_none(found, NOW, 60.0) == why


def test_a_job_that_starts_torchrun_is_followed_with_the_reason_and_what_to_do() -> None:
    cluster = FakeCluster(with_command("torchrun", "train.py"))
    cluster.script(lambda: cluster.put(with_command("torchrun", "train.py", state="Succeeded")))
    found = run("digits", cluster=cluster)
    assert found.stderr.splitlines() == [
        f"no progress: {WITHOUT_AGENT}",
        "next: pytorchjob logs digits -n team -f",
    ]
    assert found.stdout.splitlines()[0] == "digits: Running, shows no progress"
