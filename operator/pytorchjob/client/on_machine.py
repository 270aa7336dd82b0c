"""The back end of this machine: each job is a `pytorchjob run`, whose status and lines are files. No cluster is needed.

The jobs belong to this process: they are stopped when it ends.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchjob.client.backend import Object, UnsupportedError
from pytorchjob.cluster.errors import JobMissing
from pytorchjob.logs.ranks import Ranks, parse_ranks
from pytorchjob_operator.errors import CannotRun
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.terminal import visible

_JOB, _STATUS, _LOG = "job.json", "status.json", "log.txt"
_RANK = re.compile(r"\[rank(\d{1,9})\]")
_EVENT = re.compile(r"([-!]) (\w+): (.*)")
_POLL_SECONDS = 0.2
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Run:
    process: subprocess.Popen[bytes]
    folder: Path

    def stop(self) -> None:
        """End the job as Ctrl-C does, and wait; a run that does not end is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class MachineBackend:
    """Jobs that this process runs on this machine."""

    def __init__(self, directory: str | Path | None = None) -> None:
        """Keep the files of the jobs in `directory`; by default in a temporary one that is removed at the end."""
        self._root = Path(directory) if directory else Path(tempfile.mkdtemp(prefix="pytorchjob-client-"))
        self._root.mkdir(parents=True, exist_ok=True)
        self._runs: dict[str, _Run] = {}
        weakref.finalize(self, _close, self._runs, None if directory else self._root)

    def create(self, job: Object) -> Object:
        """See `Backend`; raises CannotRun if a job of this name exists."""
        name = job["metadata"]["name"]
        if name in self._runs:
            raise CannotRun(f"a job named {name} exists already: delete it first, or choose another name")
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        (folder / _JOB).write_text(json.dumps(job))
        (folder / _STATUS).unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytorchjob", "run", "-f", str(folder / _JOB)]
        command += ["--status-file", str(folder / _STATUS)]
        with (folder / _LOG).open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - this package's own command
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._runs[name] = _Run(process, folder)
        return job

    def get(self, name: str) -> Object:
        """See `Backend`; raises CannotRun if the machine could not run the job."""
        run = self._run(name)
        over = run.process.poll() is not None  # read before the file, which is complete then
        status = run.folder / _STATUS
        if status.exists():
            found: Object = json.loads(status.read_text())
            return found
        if over:
            raise CannotRun(f"the job {name} could not be run: {visible(self._last_line(run))}")
        made: Object = json.loads((run.folder / _JOB).read_text())
        return made

    def list(self) -> Sequence[Object]:
        """See `Backend`."""
        return [self.get(name) for name in self._runs]

    def patch(self, name: str, change: Mapping[str, Any]) -> Object:
        """See `Backend`; only the number of workers can be changed."""
        run, role = self._run(name), ReplicaType.WORKER.value
        match change:
            case {"spec": {"pytorchReplicaSpecs": {ReplicaType.WORKER.value: {"replicas": int(count)}}}}:
                pass
            case _:
                raise UnsupportedError("a job on this machine can be scaled and deleted, nothing else: use a cluster")
        job: Object = json.loads((run.folder / _JOB).read_text())
        if role not in job["spec"]["pytorchReplicaSpecs"]:
            raise UnsupportedError(f"the job {name} has no {role}: only a job with workers can be scaled")
        job["spec"]["pytorchReplicaSpecs"][role]["replicas"] = count
        (run.folder / _JOB).write_text(json.dumps(job))
        run.process.send_signal(signal.SIGHUP)
        return self.get(name)

    def delete(self, name: str) -> None:
        """See `Backend`."""
        run = self._run(name)
        run.stop()
        del self._runs[name]
        shutil.rmtree(run.folder, ignore_errors=True)

    def logs(self, name: str, *, follow: bool, ranks: str) -> Iterator[str]:
        """See `Backend`; the run's own messages are among the lines."""
        run, chosen = self._run(name), parse_ranks(ranks) if ranks else None
        for line in _lines(run, follow=follow):
            if chosen is None or _is_of(line, chosen):
                yield line

    def events(self, name: str) -> Sequence[Object]:
        """See `Backend`; they have a type, a reason and a message."""
        found = map(_EVENT.fullmatch, _lines(self._run(name), follow=False))
        kinds = {"-": "Normal", "!": "Warning"}
        return [{"type": kinds[event[1]], "reason": event[2], "message": event[3]} for event in found if event]

    def _run(self, name: str) -> _Run:
        run = self._runs.get(name)
        if run is None:
            raise JobMissing(f"there is no job named {name} here; there are: {', '.join(self._runs) or 'none'}")
        return run

    def _last_line(self, run: _Run) -> str:
        return next(iter(list(_lines(run, follow=False))[-1:]), f"exit status {run.process.returncode}")


def _lines(run: _Run, *, follow: bool) -> Iterator[str]:
    with (run.folder / _LOG).open(errors="replace") as log:
        rest = ""
        while True:
            over = run.process.poll() is not None
            *whole, rest = (rest + log.read()).split("\n")
            yield from whole
            if not follow or over:
                break
            time.sleep(_POLL_SECONDS)
        if rest:
            yield rest


def _is_of(line: str, ranks: Ranks) -> bool:
    found = _RANK.search(line)
    return found is not None and ranks.has(int(found[1]))


def _close(runs: dict[str, _Run], root: Path | None) -> None:
    for run in runs.values():
        run.stop()
    if root is not None:
        shutil.rmtree(root, ignore_errors=True)
