"""What the watch over a script costs: the script's own calls, and the agent's check of eight workers."""

import os
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Row, Samples, load, spread
from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.hangs.watch import HangWatch
from pytorchjob_agent.script import api
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.script.progress_file import PROGRESS

_CALLS = 100_000
_CHECKS = 2_000
_WORKERS = 8
_COMMAND = "python -m benchmarks progress"
_Cells = tuple[str, str, str, str, str]


async def measure(repeat: int) -> list[Row]:
    """The CPU time of each call, and that of a check as a share of the second until the next."""
    before = load()
    with tempfile.TemporaryDirectory() as directory:
        files = ProgressFiles(Path(directory), _WORKERS)
        os.environ.update(files.env(0))
        rows = [
            _row("progress(step, total)", repeat, lambda: api.progress(5, 100)),
            _row("progress(step, total) with 3 metrics", repeat, _three),
            _row("checkpoint_requested() in a group of one", repeat, api.checkpoint_requested),
            _checks(files, repeat),
        ]
        files.close()
    return [Row(*row, f"{_COMMAND} --repeat {repeat}", f"{before} to {load()}", each) for row, each in rows]


def _three() -> None:
    api.progress(5, 100, loss=0.5, lr=0.1, accuracy=0.9)


def _row(name: str, repeat: int, call: Callable[[], object]) -> tuple[_Cells, Samples]:
    call()
    micros = [
        seconds / _CALLS * 1e6 for seconds in timeit.repeat(call, timer=time.process_time, number=_CALLS, repeat=repeat)
    ]
    return (f"`{name}`", spread(micros, "µs"), "", "", "< 5 µs"), {"ours": micros}


def _checks(files: ProgressFiles, repeat: int) -> tuple[_Cells, Samples]:
    """One check a second: its CPU time in seconds is the share of one core."""
    watch = HangWatch(HangRules(), files, WorkerMeter(dict.fromkeys(range(_WORKERS), os.getpid())))
    workers = [api.Script(files.env(local_rank)[PROGRESS]).file for local_rank in range(_WORKERS)]
    shares, used, now = list[float](), 0.0, time.monotonic()
    for check in range(1, repeat * _CHECKS + 1):
        now += 1.0  # time is an argument, so the checks need not wait for it
        for file in workers:
            file.report(check, None, now, {"loss": 0.5})
        began = time.process_time()
        assert watch.check(now) is None
        used += time.process_time() - began
        if check % _CHECKS == 0:
            shares.append(used / _CHECKS * 100)
            used = 0.0
    cells = (f"agent's check of {_WORKERS} workers, once a second", _percent(shares), "", "", "< 0.1 % of a core")
    return cells, {"ours": shares}


def _percent(shares: list[float]) -> str:
    return f"{statistics.median(shares):.4f} % ({min(shares):.4f} to {max(shares):.4f}, n={len(shares)})"
