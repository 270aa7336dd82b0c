"""What a worker measures of its script's saves and loads: a stand-in for torch, and torch itself."""

import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from pytorchjob_agent.observers.observed_saves import ObservedSaves, WorkerSaves
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.script.progress_file import SAVES_AT
from pytorchjob_agent.workers.startup import pytorchjob_saves

ROOT = Path(__file__).parents[4]
STARTUP = ROOT / "operator" / "pytorchjob_agent" / "workers" / "startup"

SERIALIZATION = """
import time
def save(obj, f):
    if obj == "broken":
        raise OSError("no space")
    time.sleep(obj)
def load(f):
    time.sleep(f)
    return 7
"""
DISTRIBUTED = """
import torch
def save(parts):
    for part in parts:
        torch.save(part, "part")
"""
LIGHTNING = """
import io, time, torch
def _atomic_save(checkpoint, filepath):
    torch.save(checkpoint, io.BytesIO())
    time.sleep(checkpoint)
"""
STEPS = "from pytorchjob_agent import progress\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with torch's functions, which take as many seconds as they are asked to."""
    checkpoint = tmp_path / "torch" / "distributed" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("from torch.serialization import load, save\n")
    (tmp_path / "torch" / "serialization.py").write_text(SERIALIZATION)
    (tmp_path / "torch" / "distributed" / "__init__.py").touch()
    (checkpoint / "__init__.py").write_text("from torch.distributed.checkpoint.state_dict_saver import save\n")
    (checkpoint / "state_dict_saver.py").write_text(DISTRIBUTED)
    cloud = tmp_path / "lightning" / "fabric" / "utilities"
    cloud.mkdir(parents=True)
    for package in (cloud, *cloud.parents[:2]):
        (package / "__init__.py").touch()  # else an installed Lightning would come first
    (cloud / "cloud_io.py").write_text(LIGHTNING)
    return tmp_path


def measured(folder: Path, script: str) -> tuple[WorkerSaves | None, str]:
    """What a worker with this script has measured, and what it printed."""
    files = ProgressFiles(folder / "files", 1)
    paths = (STARTUP, folder, ROOT / "operator")
    env = {**os.environ, **files.env(0), **ObservedSaves(files).env(0), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = WorkerSaves.read(files.read_bytes(SAVES_AT, 48)[0])
    files.close()
    return found, done.stdout


def is_measured(seconds: float, asked: float) -> bool:
    """Whether a measured time is as long as it was asked to be; a busy machine adds to it."""
    return asked <= seconds < asked + 2 if asked else seconds == 0.0


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("import torch", (0, 0.0, None, 0.0, False), id="a script that saves nothing"),
        pytest.param("import torch; torch.save(0.2, 'a')", (1, 0.2, None, 0.0, False), id="a save"),
        pytest.param("import torch; torch.load(0.2)", (0, 0.0, None, 0.2, False), id="a load before the first step"),
        pytest.param(
            STEPS + "import torch; progress(1); torch.load(0.2)",
            (0, 0.0, None, 0.0, False),
            id="a load after the first step is no restore",
        ),
        pytest.param(
            "from torch import save; save(0.1, 'a'); save(0.1, 'b')",
            (1, 0.2, None, 0.0, False),
            id="two files at once are one save",
        ),
        pytest.param(
            "import time, torch; torch.save(0.1, 'a'); time.sleep(1.1); torch.save(0.1, 'a')",
            (2, 0.2, None, 0.0, False),
            id="a pause separates two saves",
        ),
        pytest.param(
            STEPS + "import torch\nfor step in (5, 6): progress(step); torch.save(0.1, 'a'); torch.save(0.1, 'b')",
            (2, 0.4, 6, 0.0, False),
            id="a step separates two saves of two files",
        ),
        pytest.param(
            "from torch.distributed.checkpoint import save; save([0.1, 0.1])",
            (1, 0.2, None, 0.0, False),
            id="a save of many parts counts once",
        ),
        pytest.param(
            "from lightning.fabric.utilities.cloud_io import _atomic_save; _atomic_save(0.1, 'a')",
            (1, 0.2, None, 0.0, False),
            id="Lightning saves in memory first",
        ),
        pytest.param(
            "import io, torch; torch.save(0.1, io.BytesIO())", (0, 0.0, None, 0.0, True), id="a save in memory is noted"
        ),
        pytest.param(
            "import threading, torch; threading.Thread(target=torch.save, args=(0.1, 'a')).start()",
            (0, 0.0, None, 0.0, True),
            id="a save in a thread is noted: nothing waits for it",
        ),
        pytest.param(
            "import os, torch\nif os.fork() == 0: torch.save(0.1, 'a'); os._exit(0)\nos.wait()",
            (0, 0.0, None, 0.0, True),
            id="a save in a child is noted",
        ),
        pytest.param(
            "import torch\ntry: torch.save('broken', 'a')\nexcept OSError: pass",
            (0, 0.0, None, 0.0, False),
            id="a save that fails is none",
        ),
    ],
)
def test_a_worker_measures_its_saves(
    folder: Path, script: str, expected: tuple[int, float, int | None, float, bool]
) -> None:
    saves, seconds, step, load_seconds, elsewhere = expected
    found, _ = measured(folder, script)
    assert found is not None
    assert (found.saves, found.step, found.elsewhere) == (saves, step, elsewhere)
    assert is_measured(found.seconds, seconds)
    assert is_measured(found.load_seconds, load_seconds)


def test_the_functions_look_as_before(folder: Path) -> None:
    script = "import pickle, torch; print(torch.save.__module__, torch.save.__name__, torch.load(0))\n"
    assert measured(folder, f"{script}assert pickle.loads(pickle.dumps(torch.save)) is torch.save")[1] == (
        "torch.serialization save 7\n"
    )


@pytest.mark.torch
def test_torch_itself(tmp_path: Path) -> None:
    script = (
        "import torch, torch.distributed.checkpoint as dcp\n"
        "torch.save({'a': torch.ones(3)}, 'a')\n"
        "dcp.save({'a': torch.ones(3)}, checkpoint_id='b', no_dist=True)\n"
        "assert torch.load('a')['a'].sum() == 3\n"
    )
    found, _ = measured(tmp_path, script)
    assert found is not None
    assert (found.saves, found.elsewhere) == (1, False)
    assert found.seconds > 0
    assert found.load_seconds > 0


def test_a_save_in_the_background_is_written_once_its_future_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(pytorchjob_saves, "after_save", [lambda: heard.append("written")])
    pending: Future[None] = Future()
    pytorchjob_saves._written(pending)
    assert heard == []
    pending.set_result(None)
    pytorchjob_saves._written(None)
    assert heard == ["written"] * 2
