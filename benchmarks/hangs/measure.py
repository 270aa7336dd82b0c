"""Runs each kind of train.py as a job of two pods by `pytorchjob run`, with default settings, and reads its output."""

import contextlib
import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from benchmarks.table import load, machine

TRAIN = Path(__file__).with_name("train.py")
_BIN = Path(sys.executable).parent
_START_SECONDS = 300.0
_END_SECONDS = 60.0
_RANKS = 2
_HANG = re.compile(r"WorkersHang: (.*)")


@dataclass(frozen=True)
class Run:
    """One run of one kind; `seconds` from its begin to the alarm, or to the end of the run without one."""

    kind: str
    seconds: float
    alarm: str | None
    load: str
    machine: str
    date: str

    def row(self) -> dict[str, object]:
        """Return it as one line of raw data."""
        return asdict(self)


class Job:
    """One job, and the lines that it prints."""

    def __init__(self, kind: str, folder: Path) -> None:
        """Start it."""
        self.kind, self._begun, self.alarm = kind, 0, ""
        self.began: float | None = None
        self.alarmed: float | None = None
        file = folder / f"{kind}.yaml"
        file.write_text(yaml.safe_dump(_job(kind)))
        env = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [str(_BIN / "pytorchjob"), "run", "-f", str(file)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        )
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.monotonic()
            with self._changed:
                self._begun += line.rstrip().endswith(f"{self.kind.replace('-', '_')} begins")
                if self.began is None and self._begun == _RANKS:
                    self.began = now
                if (found := _HANG.search(line)) and self.alarmed is None:
                    self.alarmed, self.alarm = now, found[1]
                self._changed.notify_all()

    def wait(self, name: str, seconds: float) -> bool:
        """Wait until it began, or alarmed; False if that takes longer or the job ends before."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while getattr(self, name) is None and time.monotonic() < deadline and self.process.poll() is None:
                self._changed.wait(1.0)
            return getattr(self, name) is not None

    def end(self) -> None:
        """Stop it, with everything that it started."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)
        self.process.kill()


def run(kind: str, seconds: float) -> Run:
    """Run a kind until an alarm, at most `seconds` from when it began. Raises RuntimeError if it does not run."""
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(kind, Path(folder))
        try:
            if not job.wait("began", _START_SECONDS) or job.began is None:
                raise RuntimeError(f"{kind}: did not begin")
            job.wait("alarmed", seconds)
            took = (job.alarmed or time.monotonic()) - job.began
            if job.alarmed is None and took < seconds:
                raise RuntimeError(f"{kind}: ended after {took:.0f} s without an alarm")
        finally:
            job.end()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Run(kind, round(took, 1), job.alarm or None, f"{before} to {load()}", machine(), date)


def _job(kind: str) -> dict[str, object]:
    container = {
        "name": "pytorch",
        "image": "example.com/train:1",
        "command": ["pytorchjob-agent", "run", "--", str(TRAIN)],
        "env": [{"name": "KIND", "value": kind}],
    }
    worker = {"replicas": _RANKS, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": kind},
        "spec": {"nprocPerNode": "1", "pytorchReplicaSpecs": {"Worker": worker}},
    }
