"""How an unmodified torchrun finds our rendezvous: by an entry point that costs nothing where nobody asks for it."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pytorchjob_agent.command.install import install

_TORCHRUN = Path(sys.executable).parent / "torchrun"


def run(tmp_path: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run with nothing of ours on the path but what was installed into a folder."""
    install(tmp_path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTORCHJOB_", "PET_"))}
    return subprocess.run(
        command, env={**clean, "PYTHONPATH": str(tmp_path), **env}, capture_output=True, text=True, timeout=100
    )


def test_the_entry_point_does_not_load_torch(tmp_path: Path) -> None:
    load = "from pytorchjob_agent.rendezvous.entry_point import factory; factory()"
    code = f"import sys; {load}; sys.exit('torch' in sys.modules)"
    assert run(tmp_path, sys.executable, "-c", code).returncode == 0


@pytest.mark.torch
@pytest.mark.skipif(
    metadata.version("torch").startswith(("2.4.", "2.5.")), reason="torchrun finds handlers from 2.6 on"
)
def test_torchrun_comes_to_our_rendezvous_and_says_what_is_missing(tmp_path: Path) -> None:
    told = {"PET_RDZV_BACKEND": "pytorchjob", "PET_RDZV_ENDPOINT": "127.0.0.1:1", "PET_NNODES": "1:1"}
    done = run(tmp_path, str(_TORCHRUN), "--no-python", "true", **told)
    assert done.returncode != 0
    assert "PYTORCHJOB_COORDINATOR is not set" in done.stderr
    assert "registering out of tree plugin" not in done.stderr


@pytest.mark.torch
def test_torchrun_without_it_is_as_ever(tmp_path: Path) -> None:
    done = run(tmp_path, str(_TORCHRUN), "--standalone", "--no-python", "echo", "ran")
    assert (done.returncode, done.stdout.strip()) == (0, "ran")
    assert "pytorchjob" not in done.stderr
