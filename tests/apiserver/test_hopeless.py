"""Verdicts of agents and crash loops against a real API server; containers report what the test says."""

from typing import Any

import pytest

from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from tests.apiserver.operator_process import Jobs, Kubelet
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

BRIEF = {"startedAt": "2026-01-02T03:00:00Z", "finishedAt": "2026-01-02T03:00:05Z"}


async def started(jobs: Jobs, kubelet: Kubelet) -> None:
    """A job of one Master and one worker that run."""
    jobs.apply("x", 1)
    await until_async(lambda: pods_are_made(kubelet))
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))


async def pods_are_made(kubelet: Kubelet) -> bool:
    return set(await kubelet.pods()) == {"x-master-0", "x-worker-0"}


def looping(exits: int, code: int, message: str) -> list[dict[str, Any]]:
    """The containers of a pod whose container `pytorch` has ended so often and waits to be started again."""
    common = {"name": "pytorch", "image": "x", "imageID": "x", "ready": False, "restartCount": exits - 1}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    return [{**common, "state": waiting, "lastState": {"terminated": {"exitCode": code, "message": message, **BRIEF}}}]


def verdict(reason: ExitReason, code: ExitCode) -> str:
    return TerminationMessage(reason, code, message="the agent's words").to_json()


async def test_a_crash_loop_is_shown_with_the_last_line(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet)
    await kubelet.report("Running", "x-worker-0", containers=looping(4, 2, "a line\nno such file: train.py\n"))
    await becomes(lambda: jobs.condition("x", "Degraded"))
    shown = jobs.condition("x", "Degraded")
    assert shown is not None
    assert shown["reason"] == "CrashLoop"
    assert "pod x-worker-0 has ended 4 times" in shown["message"]
    assert "exit code 2, no such file: train.py" in shown["message"]
    assert ("Running", "True") in jobs.conditions("x")


async def test_an_agent_without_torch_ends_the_job(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet)
    words = verdict(ExitReason.BAD_SETUP, ExitCode.SETUP)
    await kubelet.report("Running", "x-worker-0", containers=looping(3, ExitCode.SETUP, words))
    await becomes(lambda: jobs.condition("x", "Failed"))
    failed = jobs.condition("x", "Failed")
    assert failed is not None
    assert (
        "pod x-worker-0 ended 3 times in a row soon after its start: BadSetup: the agent's words" in failed["message"]
    )


async def test_an_unfit_pod_is_replaced_twice_and_then_ends_the_job(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet)
    unfit = looping(1, ExitCode.PREFLIGHT, verdict(ExitReason.PREFLIGHT_FAILED, ExitCode.PREFLIGHT))
    for tried in (1, 2):
        uid = (await kubelet.pods())["x-worker-0"]["metadata"]["uid"]
        await kubelet.report("Running", "x-worker-0", containers=unfit)
        await until_async(lambda uid=uid: is_replaced(kubelet, uid))
        assert len(jobs.get("x")["status"]["unfitPods"]) == tried
    await kubelet.report("Running", "x-worker-0", containers=unfit)
    await becomes(lambda: jobs.condition("x", "Failed"))
    failed = jobs.condition("x", "Failed")
    assert failed is not None
    assert "pod x-worker-0 was unfit for the job 3 times" in failed["message"]


async def is_replaced(kubelet: Kubelet, uid: str) -> bool:
    pod = (await kubelet.pods()).get("x-worker-0")
    return pod is not None and pod["metadata"]["uid"] != uid
