"""Real agents with real torch workers, and a real coordinator: what happens to whom, by the training's own lines."""

import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from pytorchjob_agent.contract.reasons import CollectiveFaultKind, ExitReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds.values import Policy
from tests.ports import free_port
from tests.waiting import until

from .conftest import Job

pytestmark = [pytest.mark.torch]
WARM = {"PYTORCHJOB_START_MODE": "warm"}
LONG = pytest.mark.long
"""Of what a test of the cluster shows with pods."""


@pytest.mark.parametrize("how", [pytest.param({}, id="cold", marks=LONG), pytest.param(WARM, id="warm")])
def test_a_crash_restarts_the_workers_of_all_and_the_containers_of_none(job: Job, how: dict[str, str]) -> None:
    pods = job.start_all(FAIL="1:25:1", **how)
    assert job.end() == [0, 0]
    for pod in pods:
        before = [step for step, _, _, restarts in pod.steps() if restarts == 0]
        after = [step for step, _, _, restarts in pod.steps() if restarts == 1]
        assert (before[0], before[-1] in (24, 25)) == (1, True)
        assert after == list(range(21, 61)), "on from the last checkpoint, each step once"
        assert "node_rank" not in pod.text(), "torch warns of nothing that the operator set"
    assert job.report().restarts == 1
    assert "rank 1 (pod-1) exited with code 7 at step 25" in job.report().last_restart.message  # type: ignore[union-attr]


def test_workers_of_a_role_count_among_themselves(job: Job) -> None:
    pods = [job.start(0, PET_ROLE="reader"), job.start(1, PET_ROLE="trainer")]
    assert job.end() == [0, 0]
    assert [pod.text().partition("role ")[2].split()[:3] for pod in pods] == [
        ["reader", "0", "1"],
        ["trainer", "0", "1"],
    ]


@LONG
def test_without_a_coordinator_the_members_recover_by_themselves(job: Job) -> None:
    zero, one = job.start_all(STEPS="150", LINGER="10")
    zero.says("step 5 ")
    job.away()
    time.sleep(2)
    os.kill(one.worker(), signal.SIGKILL)
    zero.says("restarts 1")
    job.lead()
    until(lambda: job.report().round == "1.1.1")
    job.hurry()
    assert job.end() == [0, 0]
    assert job.report().round == "1.1.1"
    one.says(r"works in round 1\.1\.1 from step")
    assert {world for _, _, world, _ in zero.steps()} == {2}


def test_without_a_coordinator_a_failure_that_every_start_repeats_ends_its_pod(job: Job) -> None:
    zero, one = job.start_all(FAIL="1:80:9", HOW="missing", STEPS="150")
    zero.says("step 5 ")
    job.away()
    assert one.process.wait(100) == 1
    assert one.message().errors == ("ModuleNotFoundError",)
    assert "Every start repeats ModuleNotFoundError" in one.message().message
    assert "restarts 1" not in one.text()


@pytest.mark.needs_hangs
@LONG
def test_without_a_coordinator_the_same_hang_ends_a_pod_at_its_third_time(job: Job) -> None:
    rules = '{"progressSeconds": 10, "firstProgressSeconds": 100}'
    pods = job.start_all(FAIL="1:80:9", HOW="hang", PYTORCHJOB_HANG=rules, STEPS="150")
    pods[0].says("step 5 ")
    job.away()
    until(lambda: any(pod.process.poll() is not None for pod in pods), seconds=250)
    ended = next(pod for pod in pods if pod.process.poll() is not None)
    assert "The same hang occurred 3 times in a row" in ended.message().message
    assert "restarts 2" in ended.text()


def test_a_job_ends_well_without_a_coordinator(job: Job) -> None:
    zero, _ = job.start_all(LINGER="10")
    zero.says("step 5 ")
    job.away()
    job.hurry()
    assert job.end() == [0, 0]


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param(True, id="SIGTERM", marks=LONG),
        pytest.param(False, id="the shell around it keeps SIGTERM to itself: the coordinator tells it"),
    ],
)
def test_a_pod_that_has_to_go_costs_no_step(job: Job, signals: bool) -> None:
    job.policy = Policy(1, 2)
    job.env |= {"STEPS": "150", "LINGER": "35"}
    zero, one = job.start_all()
    zero.says("step 33 ")
    if signals:
        one.process.send_signal(signal.SIGTERM)
    job.expect(0, terminating={1: "u-1"})
    zero.says("of 1 restarts 0")
    job.hurry()
    assert one.process.wait(60) == ExitCode.DRAINED
    assert one.message().reason == ExitReason.DRAINED
    zero.says("finished at 150")
    assert [step for step, _, _, _ in zero.steps()] == list(range(1, 151)), "each step once, none lost"


@LONG
def test_a_pod_that_comes_in_addition_joins_without_a_step_lost(job: Job) -> None:
    job.policy = Policy(1, 2, last_call_timeout=0.0)
    job.env |= {"STEPS": "150", "LINGER": "35"}
    zero = job.start(0)
    zero.says("of 1 restarts 0")
    job.start(1)
    zero.says("of 2 restarts 0")
    job.hurry()
    zero.says("finished at 150")
    assert [step for step, _, _, _ in zero.steps()] == list(range(1, 151))
    assert job.end() == [0, 0]


@LONG
def test_rank_0_may_die_and_come_back_as_another_pod(job: Job) -> None:
    zero, one = job.start_all(LINGER="25")
    one.says("step 20 ")
    os.killpg(zero.process.pid, signal.SIGKILL)
    for pid in (zero.launcher, zero.worker):
        try:
            os.kill(pid(), signal.SIGKILL)
        except (AssertionError, ProcessLookupError, IndexError):
            continue
    zero.process.wait(60)
    one.forget()
    job.hurry()
    job.start(0, uid="v")
    one.says("of 2 restarts 0")
    assert [pod.process.wait(100) for pod in job.pods.values()] == [0, 0]
    assert job.report().restarts == 0, "a member that is lost uses up no restart"


@LONG
def test_a_launcher_that_crashes_is_started_again_in_its_container(job: Job) -> None:
    zero, one = job.start_all(STEPS="150", LINGER="25")
    zero.says("step 20 ")
    os.kill(one.launcher(), signal.SIGKILL)
    one.says("starting it again")
    job.hurry()
    assert job.end() == [0, 0]
    assert zero.steps()[-1][0] == one.steps()[-1][0] == 150


@pytest.mark.needs_hangs
@LONG
def test_a_hang_is_found_named_and_ended_after_everybodys_stacks(job: Job) -> None:
    rules = '{"progressSeconds": 10, "firstProgressSeconds": 100}'  # healthy ranks may stand still for seconds
    zero, one = job.start_all(FAIL="1:25:1", HOW="hang", PYTORCHJOB_HANG=rules)
    assert job.end() == [0, 0]
    assert "hang_here" in one.text(), "the stack of the one that hangs is in its log"
    assert "all_reduce" in zero.text(), "and so is that of the one that waits for it"
    told = job.report().last_restart
    assert told is not None
    assert told.message.startswith("rank 1 (pod-1) hangs at step 25")
    assert "hang_here" in told.message
    assert told.first is not None
    assert told.first.collective is not None
    assert (told.first.collective.kind, told.first.collective.ranks) == (CollectiveFaultKind.NOT_BEGUN, (1,))


def test_a_pod_whose_device_is_broken_ends_and_its_successor_takes_its_place(job: Job) -> None:
    """The error is torch's, made by the script: no device here has one."""
    zero, one = job.start_all(FAIL="1:5:1", HOW="broken device")
    assert one.process.wait(100) == ExitCode.PREFLIGHT
    assert one.message().reason == ExitReason.DEVICE_FAILED
    assert "uncorrectable ECC error" in one.message().message
    job.start(1, uid="v")
    assert job.end() == [0, 0]
    assert "restarts 1" in zero.text()
    told = job.report().last_restart
    assert told is not None
    assert told.message.startswith("rank 1 (pod-1) exited with code 1 at step 5: torch.AcceleratorError")


@pytest.mark.needs_hangs
def test_a_rank_in_another_collective_than_the_others_is_named(job: Job) -> None:
    """Its stack says that it waits in a collective, like the stacks of all others."""
    job.policy = Policy(3, 3)
    rules = '{"progressSeconds": 10, "firstProgressSeconds": 100}'
    pods = job.start_all(FAIL="1:25:1", HOW="barrier", PYTORCHJOB_HANG=rules)
    assert job.end() == [0, 0, 0]
    assert "collectives begun in group 0 (default_pg), the last one barrier" in pods[1].text()
    told = job.report().last_restart
    assert told is not None
    assert told.first is not None
    assert told.first.collective is not None
    assert (told.first.rank, told.first.collective.kind) == (1, CollectiveFaultKind.DIFFERS)
    assert told.first.collective.own == "barrier"


@pytest.mark.needs_hangs
@LONG
@pytest.mark.timeout(600)
def test_a_hang_of_a_script_that_reports_nothing_is_found_by_all_agents_together(job: Job) -> None:
    """Without any setting. Rank 0 waits in a collective, which alone is no hang. Rank 1 does nothing either."""
    zero, one = job.start_all(FAIL="1:25:1", HOW="hang", QUIET="1")
    until(lambda: "no rank has made progress of any kind" in zero.text(), seconds=400)
    assert job.end() == [0, 0]
    told = job.report().last_restart
    assert told is not None
    assert told.message.startswith("rank 1 (pod-1) hangs")
    assert "hang_here" in told.message
    assert "hang_here" in one.text()


@pytest.mark.needs_hangs
@LONG
def test_an_idle_pod_is_found_where_the_author_asks_for_it(job: Job) -> None:
    _, one = job.start_all(FAIL="1:25:1", HOW="hang", QUIET="1", PYTORCHJOB_HANG='{"idleSeconds": 12}')
    assert job.end() == [0, 0]
    told = job.report().last_restart
    assert told is not None
    assert told.message.startswith("rank 1 (pod-1) hangs"), "whichever agent's time is over first"
    assert "hang_here" in told.message
    assert "hang_here" in one.text()


@LONG
def test_the_budget_ends_the_job_with_the_first_error(job: Job) -> None:
    job.policy = Policy(2, 2, max_restarts=1)
    _, one = job.start_all(FAIL="1:5:9")
    assert job.end() == [7, 7]
    assert one.message().reason == ExitReason.WORKER_FAILED
    assert one.message().message.startswith("rank 1 (pod-1) exited with code 7")
    ended = job.report().ended
    assert ended is not None
    assert "The one restart is used up" in ended.message


def test_a_frozen_agent_is_left_behind_and_fenced_when_it_wakes(job: Job) -> None:
    job.policy = Policy(1, 2)
    job.env |= {"STEPS": "150", "LINGER": "25"}
    zero, one = job.start_all()
    zero.says("step 20 ")
    frozen = [one.process.pid, one.launcher(), one.worker()]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    zero.says("of 1 restarts 0")
    zero.forget()
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    zero.says("of 2 restarts 0")
    job.hurry()
    zero.says("finished at 150")
    assert job.end() == [0, 0]


def test_a_wrong_token_is_told_in_the_log_and_ends_the_agent_in_time(job: Job) -> None:
    wrong = job.folder / "wrong"
    wrong.write_text("0" * 64)
    pod = job.start(0, PYTORCHJOB_TOKEN_FILE=str(wrong), PET_RDZV_CONF="join_timeout=4")
    assert pod.process.wait(60) == ExitCode.RENDEZVOUS
    assert "refuses this agent" in pod.message().message


def test_a_coordinator_that_never_answers_is_told_and_ends_the_agent_in_time(job: Job) -> None:
    job.away()
    pod = job.start(0, PET_RDZV_CONF="join_timeout=4")
    assert pod.process.wait(60) == ExitCode.RENDEZVOUS
    assert "is the operator running" in pod.message().message


@LONG
def test_an_unmodified_torchrun_is_a_member(job: Job) -> None:
    torchrun = str(Path(sys.executable).parent / "torchrun")
    folder = job.folder / "put-there"
    job.env["PYTHONPATH"] = f"{folder}/pytorchjob_agent/command/startup:{folder}"
    from pytorchjob_agent.command import install

    install.install(folder)
    command = (torchrun, str(Path(__file__).parent / "train.py"))
    pods = [job.start(index, command=command, FAIL="1:25:1") for index in range(2)]
    assert job.end() == [0, 0]
    assert {restarts for _, _, _, restarts in pods[0].steps()} <= {0, 1}
    assert job.report().restarts == 1


def test_each_agent_serves_its_metrics_while_its_workers_train(job: Job) -> None:
    job.env |= {"STEPS": "150", "LINGER": "20"}
    ports = [free_port(), free_port()]
    for index, port in enumerate(ports):
        job.start(index, PYTORCHJOB_METRICS_PORT=str(port))
    until(lambda: all("\npytorchjob_agent_members 2.0\n" in scraped(port) for port in ports))
    until(lambda: all('workers_state{state="HEALTHY"} 1.0' in scraped(port) for port in ports))
    until(lambda: all("\npytorchjob_agent_step " in scraped(port) for port in ports))
    job.hurry()
    assert job.end() == [0, 0]


def scraped(port: int) -> str:
    """The metrics of an agent; empty as long as it does not serve them."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
