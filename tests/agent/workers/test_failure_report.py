"""Why the workers failed: the first failure, in words."""

from pathlib import Path

import pytest

from pytorchjob_agent.contract.environment import TERMINATION_LOG
from pytorchjob_agent.contract.noted_end import NotedEnd
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_agent.workers.failure_report import WorkerFailure, explain_failures, sentence, write_termination_log

RECORDED = {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "5"}}}
ECC = """[rank0]:[E1126 ProcessGroupNCCL.cpp:2093] [PG ID 0 PG GUID 0 Rank 0] terminating
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  CUDA error: uncorrectable ECC error encountered
CUDA kernel errors might be asynchronously reported at some other API call.

Exception raised from c10_cuda_check_implementation at CUDAException.cpp:43:
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x88 (libc10.so)
"""
WATCHDOG = (
    "[rank1]:[E1126 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600 s\n[rank1]:[E1126 ProcessGroupNCCL.cpp:697] To avoid data"
    " inconsistency, we are taking the entire process down.\n"
)


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        pytest.param([WorkerFailure(0, 0, 1, timestamp=9), WorkerFailure(3, 1, 1, timestamp=5)], 3, id="the earliest"),
        pytest.param(
            [WorkerFailure(0, 0, -15), WorkerFailure(1, 1, 1)], 1, id="not the one that was stopped because of it"
        ),
        pytest.param(
            [WorkerFailure(0, 0, -6), WorkerFailure(1, 1, -15, error=RECORDED)], 1, id="stopped with its error written"
        ),
        pytest.param([WorkerFailure(2, 0, 1), WorkerFailure(1, 1, 1)], 1, id="the lowest rank of one second"),
    ],
)
def test_the_first_failure_is_named(failures: list[WorkerFailure], rank: int) -> None:
    message = explain_failures(failures)
    assert message.rank == rank
    assert message.failed_after == tuple(sorted(failure.rank for failure in failures if failure.rank != rank))


def noted(rank: int, device_error: int) -> WorkerFailure:
    """A worker that an error of CUDA has ended; the later the rank, the later."""
    return WorkerFailure(rank, rank, 1, timestamp=rank, noted=NotedEnd(float(rank), device_error=device_error))


@pytest.mark.parametrize(
    ("failures", "reason", "rank"),
    [
        pytest.param([noted(1, 0), noted(2, 214)], "DeviceFailed", 2, id="a broken device, though another rank fell"),
        pytest.param([noted(1, 0), noted(2, 710)], "WorkerFailed", 1, id="an assertion of a kernel is the program's"),
        pytest.param([noted(1, 2), noted(2, 0)], "WorkerFailed", 1, id="so is too little memory"),
    ],
)
def test_a_broken_device_is_a_fault_of_the_node(failures: list[WorkerFailure], reason: str, rank: int) -> None:
    message = explain_failures(failures)
    assert (message.reason, message.rank) == (reason, rank)


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        pytest.param(WorkerFailure(0, 0, 1, error=RECORDED), 1, "ValueError: x", id="torch's error file"),
        pytest.param(WorkerFailure(0, 0, -15, error=RECORDED), 1, "ValueError: x", id="an error file, then stopped"),
        pytest.param(
            WorkerFailure(0, 0, 1, tail="Traceback\nKeyError: 'y'\n\n"), 1, "KeyError: 'y'", id="the last line"
        ),
        pytest.param(
            WorkerFailure(2, 0, 1, tail="[rank2]: KeyError: 'y'\n[rank2]: \n"), 1, "KeyError: 'y'", id="of torch's hook"
        ),
        pytest.param(WorkerFailure(0, 0, -9), 137, "killed by SIGKILL (out of memory?)", id="a signal"),
        pytest.param(
            WorkerFailure(0, 0, -6, tail=ECC),
            134,
            "killed by SIGABRT: CUDA error: uncorrectable ECC error encountered",
            id="an abort of C++",
        ),
        pytest.param(
            WorkerFailure(1, 0, -6, tail=WATCHDOG),
            134,
            "killed by SIGABRT: Watchdog caught collective"
            " operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600 s",
            id="NCCL's watchdog",
        ),
        pytest.param(WorkerFailure(0, 0, -6, tail="step 5\n"), 134, "killed by SIGABRT", id="an abort without a word"),
        pytest.param(WorkerFailure(0, 0, 17), 17, "exited with 17 and printed nothing", id="silence"),
    ],
)
def test_the_failure_in_words(failure: WorkerFailure, code: int, words: str) -> None:
    message = explain_failures([failure])
    assert (message.exit_code, message.message) == (code, words)


def test_the_recorded_stack_is_kept() -> None:
    assert explain_failures([WorkerFailure(0, 0, 1, error=RECORDED, tail="noise")]).traceback == "Traceback ..."


MESSAGE = TerminationMessage(
    ExitReason.WORKER_FAILED, 1, rank=2, local_rank=0, message="ValueError: x", failed_after=(0, 1)
)


def test_one_line_for_a_person() -> None:
    assert (
        sentence(MESSAGE) == "WorkerFailed: rank 2 (local rank 0): ValueError: x; 2 more ended after it (exit code 1)"
    )


def test_the_log_is_written_where_the_variable_says(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_termination_log(MESSAGE, {TERMINATION_LOG: str(path)})
    assert TerminationMessage.from_json(path.read_text()) == MESSAGE


def test_a_log_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    write_termination_log(MESSAGE, {TERMINATION_LOG: str(tmp_path / "missing" / "log")})
