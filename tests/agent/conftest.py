"""Starts real agents, and leaves none behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytorchjob_agent.contract.termination import TerminationMessage
from tests.waiting import until

ROOT = Path(__file__).parents[2]


@dataclass
class Agent:
    """One running agent and what it leaves."""

    process: subprocess.Popen[str]
    output: Path
    log: Path

    def end(self) -> int:
        """Wait for the exit code."""
        return self.process.wait(timeout=100)

    def text(self) -> str:
        """Return what it and its workers printed."""
        return self.output.read_text()

    def says(self, words: str) -> None:
        """Wait until it has printed these words."""
        until(lambda: words in self.text() or self.process.poll() is not None)
        assert words in self.text()

    def message(self) -> TerminationMessage:
        """Return its termination message."""
        return TerminationMessage.from_json(self.log.read_text())

    def leave(self, signum: int = signal.SIGTERM) -> int:
        """Ask it to go and wait for it."""
        self.process.send_signal(signum)
        return self.end()


def alive(tag: str) -> list[str]:
    """Return the pids of processes that have the tag in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            found += [entry.name] if tag.encode() in (entry / "environ").read_bytes() and not ended else []
        except OSError:
            continue
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Start agents with arguments and variables."""
    agents: list[Agent] = []

    def start(*arguments: str, **env: str) -> Agent:
        name = tmp_path / f"agent-{len(agents)}"
        own = {
            "PYTHONPATH": str(ROOT / "operator"),
            "PYTORCHJOB_TERMINATION_LOG": f"{name}.log",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "pytorchjob_agent", "run", "--", *arguments]
        with open(f"{name}.out", "w") as out:
            process = subprocess.Popen(command, env={**os.environ, **own, **env}, stdout=out, stderr=out, text=True)
        agents.append(Agent(process, Path(f"{name}.out"), Path(f"{name}.log")))
        return agents[-1]

    yield start
    for one in agents:
        if one.process.poll() is None:
            one.leave()
