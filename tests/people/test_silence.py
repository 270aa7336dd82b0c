"""A job that runs and shows no sign of its script: `status` and `doctor` notice it, and call it no fault."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from pytorchjob.cli import main
from pytorchjob.cluster import gather
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.screen.doctor import job_lines
from pytorchjob.view.causes.table import diagnose
from pytorchjob.view.job_view import JobView, make_job_view
from pytorchjob_operator import names
from tests.people import seeds
from tests.people.fake_cluster import NOW, FakeCluster, timestamp
from tests.people.seeds import JOB, MASTER, W0, W1, Object, ended, job, pod

AGENT, TORCHRUN = ["pytorchjob-agent", "run", "--", "train.py"], ["torchrun", "train.py"]
OLD = seeds.condition("Running", seconds=-3600)
ROUND = {"round": "1.1", "members": 3, "worldSize": 3}


def a_job(command: list[str] | None = None, *conditions: Object, **fields: Any) -> Object:
    return job(OLD, *conditions, container={"command": command or TORCHRUN}, **fields)


def created(made: Object, seconds: float = -3605) -> Object:
    made["metadata"]["creationTimestamp"] = timestamp(seconds)
    return made


def started(name: str, seconds: float = -3600) -> Object:
    return created(pod(name, seeds.container(seeds.running(seconds))), seconds - 5)


PODS = [started(name) for name in (MASTER, W0, W1)]


def line(seconds: float, text: str = "epoch 4") -> bytes:
    return f"{timestamp(seconds)} {text}\n".encode()


def cluster_of(*objects: Object, lines: dict[str, bytes] | None = None) -> FakeCluster:
    cluster = seeds.cluster_with(*objects)
    for name, text in (lines or {}).items():
        cluster.write(name, text)
    return cluster


def view_of(cluster: FakeCluster, *, deep: bool = False) -> JobView:
    return make_job_view(gather.gather_job(cluster, JOB, NOW, deep=deep))


def noticed(cluster: FakeCluster, *, deep: bool = False) -> list[str]:
    return [found.cause.name for found in view_of(cluster, deep=deep).observations]


@pytest.mark.parametrize("deep", [False, True], ids=["status", "doctor"])
@pytest.mark.parametrize(
    ("command", "status", "cause"),
    [
        pytest.param(AGENT, {"elastic": ROUND}, "SilentWithAgent", id="the agent"),
        pytest.param(["python", "-m", "pytorchjob_agent", "run", "--", "x.py"], {}, "SilentWithAgent", id="its module"),
        pytest.param(TORCHRUN, {}, "SilentWithoutAgent", id="torchrun"),
        pytest.param(TORCHRUN, {"elastic": ROUND}, "SilentWithAgent", id="torchrun with the agent"),
        pytest.param(["bash", "train.sh"], {}, "SilentWithoutAgent", id="a shell script"),
    ],
)
def test_silence_is_noticed_with_what_finds_a_hang(command: list[str], status: Object, cause: str, deep: bool) -> None:
    cluster = cluster_of(a_job(command, status=status), *PODS, lines={MASTER: line(-720), W0: line(-900)})
    assert noticed(cluster, deep=deep) == [cause]


@pytest.mark.parametrize(
    ("objects", "lines", "time"),
    [
        pytest.param([a_job(), *PODS], {MASTER: line(-720), W0: line(-900)}, "12m", id="since the newest line"),
        pytest.param([a_job(), *PODS], {}, "60m", id="since the start, without any line"),
        pytest.param([a_job(), *PODS], {MASTER: line(-720, "")}, "12m", id="since an empty line"),
        pytest.param([a_job(), *PODS[:2], started(W1, -600)], {MASTER: line(-720)}, "10m", id="since a restart"),
        pytest.param(
            [a_job(), *PODS[:2], created(pod(W1, ended(0, reason="Completed", seconds=-500), phase="Succeeded"))],
            {MASTER: line(-720)},
            "8m20s",
            id="since a rank has ended, while the others wait for it",
        ),
        pytest.param(
            [a_job(status={"progress": {"step": 7, "time": timestamp(-400)}}), *PODS], {}, "6m40s", id="since a step"
        ),
        pytest.param(
            [a_job(status={"elastic": {**ROUND, "lastRestart": {"time": timestamp(-300)}}}), *PODS],
            {MASTER: line(-720)},
            "5m",
            id="since a restart of the workers inside their pods",
        ),
    ],
)
def test_the_time_counts_from_the_last_sign(objects: list[Object], lines: dict[str, bytes], time: str) -> None:
    (found,) = view_of(cluster_of(*objects, lines=lines)).observations
    assert found.why == (
        f"The job runs. For {time}, no step was reported, and no line was printed by its pods. That alone is no fault."
    )


@pytest.mark.parametrize(
    ("objects", "lines"),
    [
        pytest.param([a_job(), *PODS], {W1: line(-100)}, id="any pod printed a line"),
        pytest.param([a_job(status={"progress": {"step": 7, "time": timestamp(-100)}}), *PODS], {}, id="a new step"),
        pytest.param([a_job(), *PODS[:2], started(W1, -100)], {}, id="a container that has just started"),
        pytest.param(
            [a_job(), *PODS[:2], created(started(W1), -100)], {}, id="a new pod on a node whose clock is slow"
        ),
        pytest.param([a_job(None, seeds.condition("Succeeded")), *PODS], {}, id="a job that has ended"),
        pytest.param([a_job(runPolicy={"suspend": True}), *PODS], {}, id="a suspended job"),
        pytest.param([a_job(), *PODS[:2], seeds.pending(W1, "")], {}, id="a pod that has no node"),
        pytest.param([a_job(), pod(MASTER, ended(0), phase="Succeeded")], {}, id="no pod that runs"),
    ],
)
def test_no_silence_is_noticed_in(objects: list[Object], lines: dict[str, bytes]) -> None:
    assert noticed(cluster_of(*objects, lines=lines)) == []


def test_logs_that_cannot_be_read_are_no_silence() -> None:
    cluster = cluster_of(a_job(), *PODS)
    cluster.fail("log", ClusterError("the node does not answer"))
    assert noticed(cluster) == []


def test_of_a_large_job_the_pods_that_were_read_are_counted() -> None:
    many = [started(names.pod_name(JOB, names.ReplicaType.WORKER, index)) for index in range(99)]
    (found,) = view_of(cluster_of(a_job(workers=99), started(MASTER), *many)).observations
    assert "no line was printed by its first 64 pods" in found.why


def test_a_cause_that_was_found_explains_the_silence() -> None:
    hang = seeds.degraded("ClocksDiffer", "the clocks of node-1 and node-2 differ by 9 s")
    cluster = cluster_of(a_job(AGENT, hang), *PODS)
    found = diagnose(gather.gather_job(cluster, JOB, NOW))
    assert ([finding.cause.name for finding in found.findings], found.observations) == (["ClocksDiffer"], ())


def test_doctor_notices_it_and_finds_no_cause() -> None:
    cluster = cluster_of(a_job(), *PODS, lines={MASTER: line(-720)})
    answer = CliRunner().invoke(main, ["doctor", JOB], obj=lambda options: cluster)
    assert (answer.exit_code, "No cause of a problem was found." in answer.output) == (0, True)
    assert "Noticed: SilentWithoutAgent: The job runs. For " in answer.output
    text = "\n".join(shown.text for shown in job_lines(view_of(cluster, deep=True)))
    assert "   seen: pod train-master-0, its last line, 12m ago: epoch 4" in text
    assert "     $ pytorchjob top train -n team" in text
    assert "inject: true" in text


def test_doctor_has_it_as_json() -> None:
    cluster = cluster_of(a_job(), *PODS)
    answer = CliRunner().invoke(main, ["doctor", JOB, "-o", "json"], obj=lambda options: cluster)
    shown = json.loads(answer.output)
    assert (shown["findings"], shown["observations"][0]["cause"]) == ([], "SilentWithoutAgent")


def test_status_shows_it_and_the_next_step() -> None:
    cluster = cluster_of(a_job(AGENT, status={"elastic": ROUND}), *PODS, lines={MASTER: line(-720)})
    view = view_of(cluster)
    assert (view.state.value, view.reason) == ("Training", "Round 1.1 has 3 pods and 3 workers.")
    assert view.next_command == "pytorchjob status train -n team --watch"
    answer = CliRunner().invoke(main, ["status", JOB], obj=lambda options: cluster)
    assert "\nNoticed:   The job runs. For " in answer.output
