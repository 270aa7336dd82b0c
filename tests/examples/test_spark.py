"""The example of Spark: two executors on this machine, each with a run of two processes, both at once."""

import re
import sys
from pathlib import Path

import pytest

from tests.local.jobs import ROOT
from tests.local.test_progress import installed
from tests.shell.following import follow, run_by
from tests.shell.register import SPARK

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1200)]


@installed("pyspark")
def test_two_executors_train_at_once_in_a_world_of_their_own(tmp_path: Path) -> None:
    [key] = run_by(SPARK)
    printed = follow(key, ROOT, [Path(sys.executable).parent], seconds=1000, SPARK_LOCAL_DIRS=str(tmp_path))
    runs = re.findall(r"executor=(\S+) world=(\d) port=(\d+) slope=(\S+) offset=(\S+)", printed)
    executors, worlds, ports, slopes, offsets = zip(*runs, strict=True)
    assert worlds == ("2", "2"), "each run has its own two processes, not all four"
    assert (slopes, offsets) == (("2.00", "-3.00"), ("1.00", "5.00")), "each has learned its own partition"
    assert len({*executors}) == 2
    assert len({*ports}) == 2
    assert "runs=2 at_once=True" in printed
