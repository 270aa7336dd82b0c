"""The handler that a worker registers; warm workers call it themselves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pytorchjob_agent.workers.startup.pytorchjob_startup import SIGNAL, STACKS

ROOT = Path(__file__).parents[4]
FORKED = f"""
import os, signal
from pytorchjob_agent.workers.startup import pytorchjob_startup as startup
def train():
    os.kill(os.getpid(), {int(SIGNAL)})
pid = os.fork()
if pid == 0:
    os.environ[{STACKS!r}] = os.environ["FILE"]
    assert startup.register()
    train()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), startup.register())
"""


def test_a_forked_worker_registers_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "0.stack"
    file.touch()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "FILE": str(file)}
    done = subprocess.run([sys.executable, "-c", FORKED], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 False\n", done.stderr
    assert "in train" in file.read_text()


def test_the_signal_is_none_that_scripts_or_batch_systems_use() -> None:
    assert signal.SIGRTMIN < SIGNAL < signal.SIGRTMAX
