"""Jobs whose agents meet at the coordinator, as the chart installs it: a test for each thing that can go wrong."""

import pytest

from e2e.elastic import elastic, elastic_job, events, log, starts, steps, submit, until_step
from e2e.faults import on_kind, restarts, signal_process
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
