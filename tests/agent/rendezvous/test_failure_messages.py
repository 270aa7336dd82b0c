"""What an agent reports of its workers: those that torch counts as failed, and those that had noted their ends."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytorchjob_agent.contract.noted_end import SUFFIX
from pytorchjob_agent.rendezvous import failure_messages

GONE = {"errors": ["torch.distributed.DistNetworkError"], "message": "DistNetworkError: gone"}
ERROR = {"errors": ["ValueError"], "message": "ValueError: no data"}
GROUP = SimpleNamespace(workers=[SimpleNamespace(global_rank=4 + at, local_rank=at, id=70 + at) for at in range(2)])


class Logs:
    """The workers' error files and output; each worker's note is written when it is made."""

    def __init__(self, folder: Path, *notes: dict[str, Any] | None) -> None:
        self.folder = folder
        for at, note in enumerate(notes):
            if note is not None:
                fields = {"at": 100.0, "monotonic": 10.0 + at, **note}
                Path(f"{self.error_file(at)}{SUFFIX}.{70 + at}").write_text(json.dumps(fields))

    def error_file(self, local_rank: int) -> str:
        return str(self.folder / str(local_rank))

    def tail(self, local_rank: int) -> str:
        return f"last line of {local_rank}"


@pytest.mark.parametrize(
    ("notes", "told", "message"),
    [
        pytest.param((None, ERROR), 11.0, "rank 5: ValueError: no data", id="an error"),
        pytest.param((GONE, ERROR), 11.0, "rank 5: ValueError: no data", id="a consequence, and then the cause"),
        pytest.param((GONE, ERROR), 10.0, "rank 4: DistNetworkError: gone", id="the cause after the command"),
        pytest.param((None, ERROR), 10.0, None, id="an error after the command: perhaps because of it"),
        pytest.param(({"code": 3}, None), 11.0, "rank 4: last line of 0", id="an exit code"),
        pytest.param(({"code": 0}, {"code": 0}), 11.0, None, id="success"),
        pytest.param(({"code": 0}, GONE), 11.0, "rank 4: ended with success", id="success, and a rank that needed it"),
        pytest.param((None, None), 11.0, None, id="nothing noted"),
    ],
)
def test_workers_that_are_told_to_stop_may_have_failed_before(
    tmp_path: Path, notes: tuple[dict[str, Any] | None, ...], told: float, message: str | None
) -> None:
    found = failure_messages.noted_before(told, GROUP, Logs(tmp_path, *notes))
    assert (message is None) == (found is None)
    if message is not None and found is not None:
        assert f"rank {found.rank}: {found.message}".startswith(message)


def test_the_output_of_a_worker_counts_that_had_noted_its_end_before_it_was_killed(tmp_path: Path) -> None:
    """Two ranks without an argument exit at the same time: torch sees one of them, and the other was the first."""
    failed = SimpleNamespace(error_file="", error_file_data={}, local_rank=1, pid=71, exitcode=2, timestamp=101)
    logs = Logs(tmp_path, {"code": 2}, {"code": 2, "at": 101.0})
    found = failure_messages.explain({5: failed}, GROUP, [0], logs)
    assert (found.rank, found.message, found.failed_after) == (4, "last line of 0", (5,))
