"""Pods whose script saves to a path: each has a memory of its own, which is lost with it."""

import shutil
import sys
from pathlib import Path

from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules, DurableRules

from .conftest import Job, Pod, end

SCRIPT = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(Path(__file__).parent / "plain.py"))


def memory(job: Job, index: int, uid: str = "u") -> Path:
    """The memory of one pod."""
    return job.folder / f"memory-{index}-{uid}"


def durable(job: Job) -> Path:
    """The durable directory of the job's pods."""
    return job.folder / "volume" / "run-1"


def rules(job: Job, index: int, uid: str = "u", interval: int = 0, copies: int = 1) -> str:
    """The variable of a pod with a memory of its own; with an interval, in seconds, also with a durable directory."""
    storage = DurableRules(str(durable(job)), interval) if interval else None
    return CheckpointRules(str(memory(job, index, uid)), 10**8, copies, storage).to_json()


def start(job: Job, index: int, save: str, uid: str = "u", interval: int = 0, **env: str) -> Pod:
    """Start a pod whose script saves to its memory."""
    folder = str(memory(job, index, uid))
    given = {CHECKPOINT: rules(job, index, uid, interval), **env}
    return job.start(index, uid, SCRIPT, SAVE=save, FOLDER=folder, **given)


def lose(job: Job, index: int) -> None:
    """The pod is gone with its memory."""
    end(job.pods[index])
    shutil.rmtree(memory(job, index))
