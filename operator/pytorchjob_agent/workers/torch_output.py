"""Connects the workers of torch's LocalElasticAgent to the pipes of `output`, in place of torch's files."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, LogsDest

from pytorchjob_agent.workers.output import Pump, WorkerStream, rank_prefix
from pytorchjob_agent.workers.started_by import StartedBy, as_first_process


class PipedLogs(DefaultLogsSpecs):
    """Sends each worker's output through a pump; torch creates the error files as usual."""

    def __init__(self, directory: Path, started_by: StartedBy = StartedBy.AGENT) -> None:
        """Keep everything below `directory`, which the caller removes."""
        super().__init__(log_dir=str(directory))
        self._started_by = started_by
        self._rounds = 0
        self._error_files: dict[int, str] = {}
        self._pump: Pump | None = None
        self._streams: dict[int, tuple[WorkerStream, WorkerStream]] = {}

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create the pipes of one round."""
        self.close()
        destinations = super().reify(envs)
        self._error_files = dict(destinations.error_files)
        self._rounds += 1
        directory = Path(self.root_log_dir) / f"pipes-{self._rounds}"
        directory.mkdir()
        self._pump = Pump(directory)
        for local_rank, env in envs.items():
            prefix, marks = rank_prefix(env["RANK"]), self._started_by.marks_lines
            path, out = self._pump.attach(f"{local_rank}.out", prefix, sys.stdout.buffer, marks=marks)
            destinations.stdouts[local_rank] = path
            path, err = self._pump.attach(f"{local_rank}.err", prefix, sys.stderr.buffer, marks=marks)
            destinations.stderrs[local_rank] = path
            self._streams[local_rank] = (out, err)
            if self._started_by is StartedBy.COMMAND:  # torch has read these variables, and starts no process before
                as_first_process(env, os.environ)
        self._pump.start()
        return destinations

    def close(self) -> None:
        """Print the rest of the last round's output."""
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    def listen(self, listener: Callable[[int, bytes], None]) -> None:
        """Pass each line of this round's workers to `listener` too, with the local rank, in another thread."""
        for local_rank, streams in self._streams.items():
            for stream in streams:
                stream.listener = functools.partial(listener, local_rank)

    def streams(self) -> dict[int, WorkerStream]:
        """Return the error stream of each worker by local rank; the agent's lines about a worker go there."""
        return {local_rank: err for local_rank, (_, err) in self._streams.items()}

    def error_file(self, local_rank: int) -> str:
        """Return the path of torch's error file for the worker, whether it exists or not."""
        return self._error_files.get(local_rank, "")

    def tail(self, local_rank: int) -> str:
        """Return the end of the worker's error output, or of its standard output if there is none."""
        out, err = self._streams.get(local_rank, (None, None))
        text = (err.tail if err else b"") or (out.tail if out else b"")
        return bytes(text).decode(errors="replace")
