"""The kernel's notice of the end of processes: real ones, which end in another order than they were named."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tests.local.test_goodput import clock
from tests.waiting import until

COARSE = 0.02
"""The times of files may be older than the clock, by a tick of the kernel."""


def test_each_end_is_noted_with_its_time(tmp_path: Path) -> None:
    life, pipe = tmp_path / "life", subprocess.PIPE
    life.write_text('["born", 0, 1.0]\n')
    command = [sys.executable, "-m", "benchmarks.process_ends", str(life)]
    with (
        subprocess.Popen(["cat"], stdin=pipe) as first,
        subprocess.Popen(["cat"], stdin=pipe) as second,
        subprocess.Popen(command, stdin=pipe) as watcher,
    ):
        assert watcher.stdin is not None
        watcher.stdin.write(f"{first.pid}\n{second.pid}\n".encode())
        watcher.stdin.close()
        times = [clock(tmp_path)]
        for process in (second, first):
            assert process.stdin is not None
            process.stdin.close()
            until(lambda: len(life.read_text().splitlines()) > len(times))
            times.append(clock(tmp_path))
    noted = [json.loads(line) for line in life.read_text().splitlines()][1:]
    assert [what for what, _, _ in noted] == ["ended", "ended"]
    assert watcher.returncode == 0
    for (_, _, at), (before, after) in zip(noted, pairwise(times), strict=True):
        assert before - COARSE <= at <= after + COARSE
