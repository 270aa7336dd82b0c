"""Asks the real torch of these tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytorchjob_agent.preflight import devices

ROOT = Path(__file__).parents[3]


@pytest.mark.torch
def test_torch_tells_its_versions_and_starts_no_cuda() -> None:
    torch = pytest.importorskip("torch")
    seen = devices.read_torch()
    assert (seen.version, seen.problem, seen.cuda) == (torch.__version__, "", torch.version.cuda)
    assert seen.visible >= 0
    assert not torch.cuda.is_initialized()


def test_an_image_without_torch_says_why() -> None:
    code = "from pytorchjob_agent.preflight import devices; print(devices.read_torch())"
    command = [sys.executable, "-S", "-P", "-c", code]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "operator")}, capture_output=True, text=True, timeout=60
    )
    assert "version=None, problem=\"No module named 'torch'\"" in done.stdout, done.stderr
