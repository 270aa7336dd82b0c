"""Whatever happens to a job, in whatever order: one group at a time, an exact budget, and progress or a reason."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import defects, schedule

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("SEEDS", defects.SEEDS))
"""How many schedules: as many as find each planted defect; `make simulate SEEDS=100000` runs more."""


@pytest.mark.timeout(3000)
def test_a_job_comes_back_to_work_whatever_happens() -> None:
    """Chaos, exact budgets, and ends: each schedule is one of these. A failure prints its seed and how to replay it."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", str(SEEDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    covered = re.search(r"(\d+) deleted Leases, (\d+) groups cut off together, 0 failed$", done.stdout.strip())
    assert covered is not None, done.stdout[-3000:]
    assert min(map(int, covered.groups())) > SEEDS / 50, "too few schedules have what is most dangerous"


@pytest.mark.parametrize("seed", [3, 25, 49, 7010744])
def test_a_seed_replays_its_schedule(seed: int) -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        assert schedule.run(seed, trace.append) is None
    assert traces[0] == traces[1]
    assert len(traces[0]) > 5
