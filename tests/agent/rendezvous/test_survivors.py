"""Real agents, real torch and a real coordinator: workers go on without a lost member, inside the collective."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.rounds.values import Policy
from tests.waiting import until

from .conftest import Job, Pod, end

pytestmark = [pytest.mark.torch]
DDP = Path(__file__).parent / "ddp.py"
RUN = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(DDP))
ENDLESS = "1000000"
WARM = {"PYTORCHJOB_START_MODE": "warm"}


def start(job: Job, members: int = 3, **env: str) -> list[Pod]:
    """Start a job whose workers may go on without a member, and wait until it trains."""
    job.policy = Policy(1, members, survive=True, rejoin_within=600.0)
    names = {"PYTORCHJOB_SURVIVE": "auto", "PET_NNODES": f"1:{members}", "STEPS": "400", **env}
    job.expect(*range(members))
    pods = [job.start(index, command=RUN, **names) for index in range(members)]
    for pod in pods:
        pod.says(f"step 5 of {members} ")
    until(lambda: job.report().survive is ShrinkState.READY)
    return pods


def steps(pod: Pod) -> list[tuple[int, int, int]]:
    """Its steps: number, ranks that took part, restarts."""
    found = re.findall(r"step (\d+) of (\d+) restarts (\d+)", pod.text())
    return [(int(step), int(size), int(restarts)) for step, size, restarts in found]


def kill_worker(pod: Pod) -> None:
    """Kill its worker, cold or warm."""
    os.kill(pod.process_at_work(r"begins at .*, pid (\d+)"), signal.SIGKILL)


def parameters(pod: Pod) -> str:
    """The bits of its parameters at the end."""
    return re.findall(r"parameters (-?\d+)", pod.text())[-1]


def each_step_once(job: Job, *pods: Pod) -> None:
    """Let these pods train to the end: each has done every step once, and all have the same parameters."""
    job.hurry()
    assert [pod.process.wait(100) for pod in pods] == [0] * len(pods)
    for pod in pods:
        assert [step for step, _, _ in steps(pod)] == [*range(1, 401)], "each step once"
    assert len({parameters(pod) for pod in pods}) == 1


def reasons(job: Job) -> list[TrainingReason]:
    """What the coordinator has reported."""
    return [event.reason for event in job.events]


@pytest.mark.parametrize("how", [pytest.param({}, id="cold"), pytest.param(WARM, id="warm", marks=pytest.mark.long)])
def test_the_others_go_on_without_a_killed_worker_and_no_step_is_repeated(job: Job, how: dict[str, str]) -> None:
    zero, one, two = start(job, **how)
    job.expect(0, 1, 2)
    kill_worker(one)
    for pod in (zero, two):
        pod.says(r"step \d+ of 2 restarts 0")
    job.hurry()
    assert zero.process.wait(100) == two.process.wait(100) == 0
    for pod in (zero, two):
        assert [step for step, _, _ in steps(pod)] == [*range(1, 401)], "each step once"
        assert {restarts for _, _, restarts in steps(pod)} == {0}
        assert {size for _, size, _ in steps(pod)} == {2, 3}
    assert parameters(zero) == parameters(two)
    assert TrainingReason.WENT_ON in reasons(job)
    assert reasons(job).count(TrainingReason.ROUND_STARTED) == 1


def test_a_rank_that_has_a_duty_is_not_left_behind(job: Job) -> None:
    zero, _, two = start(job)
    kill_worker(zero)
    two.says("restarts 1")
    assert TrainingReason.WENT_ON not in reasons(job)
    assert any(ShrinkState.FIRST_RANK in event.message for event in job.events)


@pytest.mark.parametrize("how", [pytest.param({}, id="cold"), pytest.param(WARM, id="warm", marks=pytest.mark.long)])
def test_a_killed_worker_comes_back_between_two_steps_and_no_other_restarts(job: Job, how: dict[str, str]) -> None:
    pods = start(job, SHARES_STATE="yes", STEPS=ENDLESS, **how)
    kill_worker(pods[1])
    pods[0].says(r"step \d+ of 2 restarts 0")
    until(lambda: steps(pods[0])[-1][1] == 3)
    until(lambda: job.report().survive is ShrinkState.READY and not job.report().without)
    job.hurry()
    assert job.end() == [0, 0, 0]
    last = steps(pods[1])[-1][0]
    for pod in (pods[0], pods[2]):
        assert [step for step, _, _ in steps(pod)] == [*range(1, last + 1)], "each step once"
        assert [size for _, size, _ in steps(pod)][-1] == 3
        assert len(re.findall("begins at", pod.text())) == 1
    assert len({parameters(pod) for pod in pods}) == 1
    assert reasons(job).count(TrainingReason.ROUND_STARTED) == 1
    assert TrainingReason.CAME_BACK in reasons(job)


@pytest.mark.long
def test_a_new_pod_with_two_workers_comes_back_between_two_steps(job: Job) -> None:
    job.policy = Policy(1, 2, survive=True, rejoin_within=600.0)
    names = {"PYTORCHJOB_SURVIVE": "auto", "PET_NNODES": "1:2", "PET_NPROC_PER_NODE": "2", "STEPS": ENDLESS}
    names |= {"SHARES_STATE": "yes", "PAUSE": "0.05"}
    job.expect(0, 1)
    zero, one = (job.start(index, command=RUN, **names) for index in range(2))
    for pod in (zero, one):
        pod.says("step 5 of 4 ")
    until(lambda: job.report().survive is ShrinkState.READY)
    end(one)
    zero.says(r"step \d+ of 2 restarts 0")
    back = job.start(1, uid="v", command=RUN, **names)
    until(lambda: steps(zero)[-1][1] == 4)
    job.hurry()
    assert zero.process.wait(100) == back.process.wait(100) == 0
    last = steps(back)[-1][0]
    done = sorted(step for step, _, _ in steps(zero))
    assert done == sorted([*range(1, last + 1)] * 2), "both ranks have done each step once"
    assert {parameters(pod) for pod in (zero, back)} == {parameters(zero)}


@pytest.mark.long
def test_the_replacement_joins_at_the_next_save(job: Job) -> None:
    pods = start(job, SAVES="150")
    kill_worker(pods[1])
    pods[0].says(r"step \d+ of 2 restarts 0")
    pods[0].says(r"begins at step 151, restarts 1", seconds=100)
    pods[1].says(r"step 151 of 3 ")
    for pod in (pods[0], pods[2]):
        assert [step for step, _, restarts in steps(pod) if restarts == 0] == [*range(1, 151)], "no step is repeated"
    job.hurry()
    assert job.end() == [0, 0, 0]
    assert len({parameters(pod) for pod in pods}) == 1


@pytest.mark.long
def test_the_others_go_on_without_a_lost_pod(job: Job) -> None:
    zero, one, two = start(job, PAUSE="0.05")
    end(one)
    job.expect(0, 2)
    for pod in (zero, two):
        pod.says(r"step \d+ of 2 restarts 0")
    job.hurry()
    assert zero.process.wait(100) == two.process.wait(100) == 0
    assert parameters(zero) == parameters(two)
    until(lambda: TrainingReason.WENT_ON in reasons(job))


@pytest.mark.long
def test_the_others_go_on_without_a_frozen_worker_which_is_killed(job: Job) -> None:
    zero, one, two = start(job, PAUSE="0.05", REPORTS="yes")
    pid = one.process_at_work(r"begins at .*, pid (\d+)")
    os.kill(pid, signal.SIGSTOP)
    for pod in (zero, two):
        pod.says(r"step \d+ of 2 restarts 0")
    until(lambda: not Path(f"/proc/{pid}").exists())
    each_step_once(job, zero, two)


@pytest.mark.long
def test_the_others_go_on_without_a_frozen_pod_which_changes_nothing_when_it_wakes(job: Job) -> None:
    zero, one, two = start(job, PAUSE="0.05")
    pid = one.process_at_work(r"begins at .*, pid (\d+)")
    for frozen in (one.process.pid, pid):
        os.kill(frozen, signal.SIGSTOP)
    for pod in (zero, two):
        pod.says(r"step \d+ of 2 restarts 0")
    for frozen in (pid, one.process.pid):
        os.kill(frozen, signal.SIGCONT)
    until(lambda: not Path(f"/proc/{pid}").exists())
    each_step_once(job, zero, two)


@pytest.mark.long
def test_the_others_go_on_at_once_when_a_pod_is_deleted(job: Job) -> None:
    zero, one, two = start(job)
    one.process.terminate()
    for pod in (zero, two):
        pod.says(r"step \d+ of 2 restarts 0")
    assert one.process.wait(100) == 143
    job.expect(0, 2)
    job.hurry()
    assert zero.process.wait(100) == two.process.wait(100) == 0
    assert [step for step, _, _ in steps(zero)] == [*range(1, 401)], "each step once"
    assert parameters(zero) == parameters(two)
