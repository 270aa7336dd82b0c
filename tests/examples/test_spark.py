"""The example of Spark: two executors on this machine, each with a run of two processes, both at once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.jobs import ROOT
from tests.local.test_progress import installed

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1200)]


@installed("pyspark")
def test_two_executors_train_at_once_in_a_world_of_their_own(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "SPARK_LOCAL_DIRS": str(tmp_path)}
    command = [sys.executable, str(ROOT / "examples/spark/job.py")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = re.findall(r"executor=(\S+) world=(\d) port=(\d+) slope=(\S+) offset=(\S+)", done.stdout)
    executors, worlds, ports, slopes, offsets = zip(*runs, strict=True)
    assert worlds == ("2", "2"), "each run has its own two processes, not all four"
    assert (slopes, offsets) == (("2.00", "-3.00"), ("1.00", "5.00")), "each has learned its own partition"
    assert len({*executors}) == 2
    assert len({*ports}) == 2
    assert "runs=2 at_once=True" in done.stdout
