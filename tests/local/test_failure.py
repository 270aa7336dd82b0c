from typing import Any

import pytest

from pytorchjob.local.failure import report, with_place
from pytorchjob.local.log_filter import ScriptPlace
from pytorchjob.local.node import ReplicaEnd
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import FailureKind
from pytorchjob_agent.contract.root_cause import Evidence
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import job, role

PLACE = ScriptPlace("train.py", 6, "step")
RANK = "rank 1 (tiny-worker-0) exited with code 1 at step 5: ValueError: x. All 2 restarts are used up"
OF_RANK = {"rank": 1, "pod": "tiny-worker-0", "exitCode": 1}
OF_POD = {"pod": "tiny-worker-0", "exitCode": 2}
KILLED = Evidence(0.0, 0, 137)
COUNTED = "PyTorchJob tiny is failed because 1 Worker replica(s) failed."
GONE = Evidence(0.0, 1, 1, ("torch.distributed.DistNetworkError",))
PEER = ReplicaEnd("worker-1", "exited with 1", "", "DistNetworkError: Connection closed by peer", GONE)
CAUSE = ReplicaEnd("worker-0", "exited with 3", "", "ValueError: x")
READ = "next: read the lines above, or run again with --verbose, which prints every line of all replicas"
NO_SCRIPT = "rank 1 (tiny-worker-0) exited with code 2: python: can't open file '/app/train.py': [Errno 2] No such file"
NO_PROGRAM = (
    "pod tiny-worker-0 ended 3 times in a row soon after its start: exit code 128,"
    " cannot start 'torchrn' on this machine (its image is not used): No such file or directory"
)
DEADLINE = "Job tiny has failed: it was active for too long"


def failed(message: str, first: dict[str, Any]) -> PyTorchJob:
    condition = {"type": "Failed", "status": "True", "message": message}
    failure = {"reason": "Any", **({"first": {"kind": "WorkerFailed", **first}} if first else {})}
    status = {"conditions": [condition], "failure": failure}
    return PyTorchJob.model_validate({**job(Worker=role(["x"])), "status": status})


@pytest.mark.parametrize(
    ("message", "first", "ends", "place", "lines"),
    [
        pytest.param(
            RANK, OF_RANK,
            [PEER],
            PLACE,
            [RANK, "at train.py:6, in step; the traceback is above",
             "next: correct train.py, line 6, and run the job again"],
            id="a rank, by the coordinator's report",
        ),
        pytest.param(
            RANK, OF_RANK,
            [PEER, ReplicaEnd("worker-0", "ended", "", "", GONE, 0), PEER._replace(rank=1, place=PLACE)],
            None,
            [RANK, "at train.py:6, in step; the traceback is above",
             "next: correct train.py, line 6, and run the job again"],
            id="a rank that has noted where it failed",
        ),
        pytest.param(
            COUNTED, {}, [PEER, CAUSE], None, [COUNTED, "worker-0: exited with 3: ValueError: x", READ],
            id="a plain replica: the replica that reports no lost peer",
        ),
        pytest.param(
            "tiny-worker-0 ended 3 times in a row soon after its start: exit code 2, no data", OF_POD, [CAUSE], None,
            ["tiny-worker-0 ended 3 times in a row soon after its start: exit code 2, no data", READ],
            id="a replica that the message names already",
        ),
        pytest.param(
            COUNTED, {}, [ReplicaEnd("worker-0", "exited with 137 (SIGKILL)", "", "", KILLED)], None,
            [COUNTED, "worker-0: exited with 137 (SIGKILL)", "next: find what killed the process; if memory ran out,"
             " start fewer processes (spec.nprocPerNode)"],
            id="a process that was killed",
        ),
        pytest.param(
            NO_SCRIPT, {**OF_RANK, "exitCode": 2}, [], None,
            [NO_SCRIPT, "next: there is no /app/train.py: correct the command in the job's file, or run it in the"
             " script's folder"],
            id="a script that does not exist",
        ),
        pytest.param(
            NO_PROGRAM, {**OF_POD, "exitCode": 128}, [], None,
            [NO_PROGRAM, "next: install this program on this machine, or correct the command in the job's file"],
            id="a program that does not exist",
        ),
        pytest.param(DEADLINE, {}, [], PLACE, [DEADLINE, READ], id="no replica"),
    ],
)  # fmt: skip
def test_a_failure_is_reported_once(
    message: str, first: dict[str, Any], ends: list[ReplicaEnd], place: ScriptPlace | None, lines: list[str]
) -> None:
    assert report(failed(message, first), ends, lambda rank, label: place) == lines


def test_a_failure_that_is_followed_by_a_restart_has_its_place_too() -> None:
    first = FirstFailure(FailureKind.EXITED, 1, "tiny-worker-0", 1)
    assert with_place(RANK, first, lambda rank, _: PLACE if rank == 1 else None) == f"{RANK} (train.py:6, in step)"
    assert with_place("Round 1.1 starts", None, lambda *_: PLACE) == "Round 1.1 starts"
    assert with_place(RANK, first, lambda *_: None) == RANK
