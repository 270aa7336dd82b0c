"""Jobs whose agents meet at the coordinator, as the chart installs it: a test for each thing that can go wrong."""

import re
from pathlib import Path

import pytest

from e2e.elastic import elastic, elastic_job, events, log, starts, steps, submit, until_step, with_env
from e2e.faults import force_delete_pod, on_kind, restarts, signal_process
from e2e.kubectl import Kubectl, until

pytestmark = pytest.mark.skipif(not on_kind(), reason="kills processes on nodes that are containers")
WORKERS = 3
STEPS = 300


def test_a_worker_that_crashes_is_started_again_in_its_container_and_so_are_the_others(kubectl: Kubectl) -> None:
    submit(kubectl, elastic_job("crash", WORKERS, steps=STEPS))
    until_step(kubectl, "crash", 0, 20)
    until(lambda: elastic(kubectl, "crash").get("worldSize") == WORKERS, 30, lambda: kubectl.story("crash"))
    assert elastic(kubectl, "crash")["members"] == WORKERS

    (before,) = starts(log(kubectl, "crash", 1))
    signal_process(kubectl.get("pod", "crash-worker-1"), pid=before["pid"])
    until(lambda: all(len(starts(log(kubectl, "crash", worker))) == 2 for worker in range(WORKERS)), 90)
    until(lambda: elastic(kubectl, "crash").get("restarts") == 1, 30, lambda: kubectl.story("crash"))
    assert "crash-worker-1" in elastic(kubectl, "crash")["lastRestart"]["message"]

    assert "Succeeded" in kubectl.finish("crash")
    logs = [log(kubectl, "crash", worker) for worker in range(WORKERS)]
    assert [[start["rank"] for start in starts(text)] for text in logs] == [
        [worker, worker] for worker in range(WORKERS)
    ]
    assert [starts(text)[1]["restarts"] for text in logs] == [1] * WORKERS
    # A worker that is killed in a step leaves it to the others' logs.
    assert sorted({step for text in logs for step in steps(text)}) == list(range(1, STEPS + 1))
    assert set(restarts(kubectl, "crash").values()) == {0}
    assert {"RoundStarted", "WorkerFailed"} <= events(kubectl, "crash")


def test_an_agent_that_is_injected_into_an_image_without_it_does_all_that_an_agent_does(kubectl: Kubectl) -> None:
    job = elastic_job("injected", 2, steps=STEPS, agent={"inject": True})
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    start = 'printf %s "$TRAIN" >/tmp/train.py; exec python -m pytorchjob_agent run -- /tmp/train.py'
    container |= {"image": "pytorchjob/examples-base:dev", "command": ["sh", "-c", start]}
    submit(kubectl, job)
    until_step(kubectl, "injected", 0, 20)
    assert not kubectl("exec", "injected-worker-0", "--", "sh", "-c", "command -v pytorchjob-agent", check=False)
    until(lambda: kubectl.job("injected")["status"].get("progress"), 60, lambda: kubectl.story("injected"))

    (before,) = starts(log(kubectl, "injected", 1))
    signal_process(kubectl.get("pod", "injected-worker-1"), pid=before["pid"])
    assert "Succeeded" in kubectl.finish("injected")
    assert "injected-worker-1" in elastic(kubectl, "injected")["lastRestart"]["message"]
    assert set(restarts(kubectl, "injected").values()) == {0}
    assert [start["rank"] for start in starts(log(kubectl, "injected", 0))] == [0, 0]


PLAIN = (Path(__file__).parent / "plain_training.py").read_text()
SAVED_EVERY = 20
_FROM = re.compile(r"world=(\d+) from=(\d+) pid=(\d+)")


@pytest.mark.parametrize("lost", ["worker", "pod"])
def test_the_others_go_on_in_their_processes_until_the_next_save_brings_the_lost_one_back(
    kubectl: Kubectl, lost: str
) -> None:
    agent = {"survive": "Auto", "checkpoint": {"directory": "/checkpoints", "memory": "256Mi"}}
    job = elastic_job(lost, 3, train=PLAIN, agent=agent, elasticPolicy={"minReplicas": 2, "maxReplicas": 3})
    given = {
        "FOLDER": "/checkpoints",
        "SAVE": "rank 0",
        "STEPS": "200",
        "PAUSE": "0.3",
        "WAITS_AT": str(2 * SAVED_EVERY - 1),
    }
    submit(kubectl, with_env(job, given))
    until(lambda: len(steps_with_loss(log(kubectl, lost, 0))) > SAVED_EVERY, 180, lambda: kubectl.story(lost))
    until(lambda: elastic(kubectl, lost).get("survive") == "Ready", 30, lambda: kubectl.story(lost))

    ((_, _, pid),) = _FROM.findall(log(kubectl, lost, 1))
    if lost == "worker":
        signal_process(kubectl.get("pod", f"{lost}-worker-1"), pid=int(pid))
    else:
        force_delete_pod(kubectl, f"{lost}-worker-1")
    until(lambda: elastic(kubectl, lost).get("without"), 30, lambda: kubectl.story(lost))
    for worker in (0, 2):
        kubectl("exec", f"{lost}-worker-{worker}", "--", "touch", "/tmp/go-on")
    until(lambda: len(_FROM.findall(log(kubectl, lost, 0))) == 2, 90, lambda: kubectl.story(lost))

    assert "Succeeded" in kubectl.finish(lost)
    assert "WentOn" in events(kubectl, lost)
    for worker in (0, 2):
        text = log(kubectl, lost, worker)
        (_, first, _), (world, back, _) = _FROM.findall(text)
        assert (first, world) == ("0", "3")
        assert int(back) > SAVED_EVERY, kubectl.story(lost)
        assert int(back) % SAVED_EVERY == 0
        assert [step for step in steps_with_loss(text) if step <= int(back)] == list(range(1, int(back) + 1))


SURVIVING = (Path(__file__).parent / "surviving_training.py").read_text()
_SHARED = re.compile(r"step=(\d+) loss=([\d.]+) ranks=(\d+)")


@pytest.mark.parametrize("lost", ["worker", "pod"])
def test_a_lost_rank_comes_back_between_two_steps_and_no_other_process_restarts(kubectl: Kubectl, lost: str) -> None:
    name = f"{lost}-back"
    agent = {"survive": "Auto", "startMode": "Warm"}
    job = elastic_job(name, 3, train=SURVIVING, agent=agent, elasticPolicy={"minReplicas": 2, "maxReplicas": 3})
    submit(kubectl, with_env(job, {"PAUSE": "0.3"}))
    until(lambda: len(shared_steps(kubectl, name, 0)) > 5, 180, lambda: kubectl.story(name))
    until(lambda: elastic(kubectl, name).get("survive") == "Ready", 30, lambda: kubectl.story(name))

    if lost == "worker":
        (pid,) = re.findall(r"pid=(\d+)", log(kubectl, name, 1))
        signal_process(kubectl.get("pod", f"{name}-worker-1"), pid=int(pid))
    else:
        force_delete_pod(kubectl, f"{name}-worker-1")
    until(lambda: "CameBack" in events(kubectl, name), 120, lambda: kubectl.story(name))
    kubectl("exec", f"{name}-worker-0", "--", "touch", "/tmp/stop")

    assert "Succeeded" in kubectl.finish(name)
    others = [shared_steps(kubectl, name, worker) for worker in (0, 2)]
    assert [len(re.findall(r"pid=", log(kubectl, name, worker))) for worker in (0, 2)] == [1, 1]
    last = others[0][-1][0]
    assert [step for step, _, _ in others[0]] == [*range(1, last + 1)], kubectl.story(name)
    assert {ranks for _, _, ranks in others[0]} == {2, 3}
    assert others[0] == others[1]
    back = log(kubectl, name, 1).rpartition("pid=")[2]
    assert (found := read_shared(back))
    assert found == [each for each in others[0] if each[0] >= found[0][0]]


def shared_steps(kubectl: Kubectl, job: str, worker: int) -> list[tuple[int, float, int]]:
    """Each step that a worker has printed: its number, the loss of the whole batch, the ranks that took part."""
    return read_shared(log(kubectl, job, worker))


def read_shared(text: str) -> list[tuple[int, float, int]]:
    """The same, of a text."""
    return [(int(step), float(loss), int(ranks)) for step, loss, ranks in _SHARED.findall(text)]


def steps_with_loss(text: str) -> list[int]:
    """The steps that the plain training has printed, in their order."""
    return [int(step) for step in re.findall(r"step=(\d+) loss=", text)]
