"""What one failed pod means: v1's table (contract A.10, A.11)."""

import pytest

from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import PodPhase
from pytorchjob_operator.plan.restart import Decision, decide
from tests.factories import make_pod

RUNNING, SUCCEEDED, FAILED, PENDING = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.PENDING
ALWAYS, ON_FAILURE = RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE
NEVER, EXIT_CODE = RestartPolicy.NEVER, RestartPolicy.EXIT_CODE


@pytest.mark.parametrize(
    ("policy", "phase", "deleting", "code", "decision"),
    [
        pytest.param(ON_FAILURE, RUNNING, False, None, Decision.KEEP, id="a running pod is kept"),
        pytest.param(NEVER, PENDING, True, None, Decision.KEEP, id="a pod that leaves before it ran has not failed"),
        pytest.param(NEVER, SUCCEEDED, True, 0, Decision.KEEP, id="a pod that succeeded may go"),
        pytest.param(ON_FAILURE, FAILED, False, 1, Decision.REPLACE, id="OnFailure: a failed pod is made again"),
        pytest.param(ALWAYS, FAILED, False, None, Decision.REPLACE, id="Always: an evicted pod is made again"),
        pytest.param(NEVER, FAILED, False, 1, Decision.END, id="Never: a failed pod ends the job"),
        pytest.param(NEVER, RUNNING, True, None, Decision.END, id="Never: a running pod that is deleted ends the job"),
        pytest.param(ON_FAILURE, RUNNING, True, None, Decision.WAIT, id="a terminating pod is waited for"),
        pytest.param(ON_FAILURE, FAILED, True, 1, Decision.WAIT, id="a failed pod is not deleted twice"),
        pytest.param(EXIT_CODE, RUNNING, True, None, Decision.WAIT, id="ExitCode: a drained pod is waited for"),
        pytest.param(EXIT_CODE, FAILED, False, 1, Decision.END, id="ExitCode: 1 is permanent"),
        pytest.param(EXIT_CODE, FAILED, False, 127, Decision.END, id="ExitCode: 127 is permanent"),
        pytest.param(EXIT_CODE, FAILED, False, 0, Decision.END, id="ExitCode: 0 in a failed pod is permanent"),
        pytest.param(EXIT_CODE, FAILED, False, 128, Decision.REPLACE, id="ExitCode: 128 is retried"),
        pytest.param(EXIT_CODE, FAILED, False, 255, Decision.REPLACE, id="ExitCode: 255 is retried"),
        pytest.param(EXIT_CODE, FAILED, False, None, Decision.REPLACE, id="ExitCode: an evicted pod is retried"),
    ],
)
def test_decide(policy: RestartPolicy, phase: PodPhase, deleting: bool, code: int | None, decision: Decision) -> None:
    pod = make_pod("worker-0", phase, deleting=deleting, exit_code=code)
    decided, reason = decide(policy, pod)
    assert decided is decision
    assert reason.startswith(pod.name)
