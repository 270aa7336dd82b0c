"""Runs each kind of train.py as a job by `pytorchjob run`, and reads the verdict on its hang in the job's status."""

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.table import load, machine
from pytorchjob_agent.contract.reasons import TrainingReason

TRAIN = Path(__file__).with_name("train.py")
LIMITS: dict[str, dict[str, int]] = {"none": {}, "progress": {"progressSeconds": 10}, "idle": {"idleSeconds": 12}}
"""What the job's author has set, by name."""
_BIN = Path(sys.executable).parent
_START_SECONDS = 300.0
_END_SECONDS = 60.0
_POLL_SECONDS = 0.02
_EVENT = "WorkersHang: "


@dataclass(frozen=True)
class Verdict:
    """What the job's status says of the hang: who, where, and in which collective others wait."""

    rank: int | None
    place: str
    kind: str
    """How it went wrong in the collective, a reason of the status. Empty: nothing is known of collectives."""
    call: str
    others_at: str
    message: str
    """The sentence for people."""


@dataclass(frozen=True)
class Run:
    """One run of one kind; `seconds` from its begin to the event, or to the end of the run without a verdict."""

    kind: str
    limits: str
    ranks: int
    seconds: float
    verdict: Verdict | None
    load: str
    machine: str
    date: str

    def row(self) -> dict[str, object]:
        """Return it as one line of raw data."""
        return asdict(self)

    @classmethod
    def read(cls, row: dict[str, Any]) -> "Run":
        """Return the run of such a line."""
        found = row["verdict"]
        return cls(**{**row, "verdict": None if found is None else Verdict(**found)})


class Job:
    """One job, the lines that it prints, and its status."""

    def __init__(self, kind: str, limits: str, ranks: int, folder: Path) -> None:
        """Start it."""
        self.kind, self._ranks, self._begun, self._status = kind, ranks, 0, folder / "status.json"
        self.began: float | None = None
        self.told: float | None = None
        """When the first event about a hang was printed: the status follows within five seconds."""
        file = folder / f"{kind}.yaml"
        file.write_text(yaml.safe_dump(_job(kind, limits, ranks)))
        env = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [str(_BIN / "pytorchjob"), "run", "-f", str(file), "--status-file", str(self._status)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._begun += line.rstrip().endswith(f"{self.kind.replace('-', '_')} begins")
            if self.began is None and self._begun == self._ranks:
                self.began = time.monotonic()
            if self.told is None and _EVENT in line:
                self.told = time.monotonic()

    def begins(self) -> float:
        """Wait until every rank has begun, and return when that was. Raises RuntimeError if it takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while self.began is None:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{self.kind}: did not begin")
            time.sleep(_POLL_SECONDS)
        return self.began

    def verdict(self, until: float) -> Verdict | None:
        """Wait for a verdict until then. Raises RuntimeError if the job ends before."""
        seen = 0
        while time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):
                changed = self._status.stat().st_mtime_ns
                if changed != seen and (found := _verdict(json.loads(self._status.read_text()))):
                    return found
                seen = changed
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind}: ended without a verdict")
            time.sleep(_POLL_SECONDS)
        return None

    def end(self) -> None:
        """Stop it, with everything that it started."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)
        self.process.kill()


def run(kind: str, limits: str, ranks: int, seconds: float) -> Run:
    """Run a kind until a verdict, at most `seconds` from when it began. Raises RuntimeError if it does not run."""
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(kind, limits, ranks, Path(folder))
        try:
            began = job.begins()
            verdict = job.verdict(began + seconds)
            took = (job.told if verdict and job.told else time.monotonic()) - began
        finally:
            job.end()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Run(kind, limits, ranks, round(took, 1), verdict, f"{before} to {load()}", machine(), date)


def _verdict(job: dict[str, Any]) -> Verdict | None:
    restart = job.get("status", {}).get("elastic", {}).get("lastRestart")
    if restart is None:
        return None
    if restart["reason"] != TrainingReason.WORKERS_HANG:
        raise RuntimeError(restart["message"])
    first = restart.get("first") or {}
    fault = first.get("collective") or {}
    return Verdict(
        first.get("rank"),
        first.get("place", ""),
        fault.get("kind", ""),
        fault.get("call", ""),
        fault.get("place", ""),
        restart["message"],
    )


def _job(kind: str, limits: str, ranks: int) -> dict[str, object]:
    reports = {"name": "REPORTS", "value": "1" if limits == "progress" else ""}
    container = {
        "name": "pytorch",
        "image": "example.com/train:1",
        "command": ["pytorchjob-agent", "run", "--", str(TRAIN)],
        "env": [{"name": "KIND", "value": kind}, reports],
    }
    worker = {"replicas": ranks, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    agent = {"agent": {"hang": LIMITS[limits]}} if LIMITS[limits] else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": kind},
        "spec": {"nprocPerNode": "1", "pytorchReplicaSpecs": {"Worker": worker}} | agent,
    }
