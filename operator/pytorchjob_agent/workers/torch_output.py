"""The workers' output under torch's LocalElasticAgent: through our pipes instead of its files."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, LogsDest

from pytorchjob_agent.workers.output import Pump, Stream

_PREFIX = "[rank{rank}]: "


class PipedLogs(DefaultLogsSpecs):
    """Sends each worker's output through a pump; error files stay as torch makes them."""

    def __init__(self, directory: Path) -> None:
        """Keep everything below `directory`, which somebody else removes."""
        super().__init__(log_dir=str(directory))
        self._rounds = 0
        self._pump: Pump | None = None
        self._streams: dict[int, tuple[Stream, Stream]] = {}

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the pipes of one round."""
        self.close()
        destinations = super().reify(envs)
        self._rounds += 1
        directory = Path(self.root_log_dir) / f"pipes-{self._rounds}"
        directory.mkdir()
        self._pump = Pump(directory)
        for local_rank, env in envs.items():
            prefix = _PREFIX.format(rank=env["RANK"])
            path, out = self._pump.attach(f"{local_rank}.out", prefix, sys.stdout.buffer)
            destinations.stdouts[local_rank] = path
            path, err = self._pump.attach(f"{local_rank}.err", prefix, sys.stderr.buffer)
            destinations.stderrs[local_rank] = path
            self._streams[local_rank] = (out, err)
        self._pump.start()
        return destinations

    def close(self) -> None:
        """Print what is left of the last round."""
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    def listen(self, heard: Callable[[int, bytes], None]) -> None:
        """Give each line of this round's workers to `heard` too, with the local rank, in another thread."""
        for local_rank, streams in self._streams.items():
            for stream in streams:
                stream.heard = functools.partial(heard, local_rank)

    def streams(self) -> dict[int, Stream]:
        """Return where lines about a worker go, by local rank: beside its errors."""
        return {local_rank: err for local_rank, (_, err) in self._streams.items()}

    def tail(self, local_rank: int) -> str:
        """Return the end of what the worker wrote: of its errors, else of its output."""
        out, err = self._streams.get(local_rank, (None, None))
        text = (err.tail if err else b"") or (out.tail if out else b"")
        return bytes(text).decode(errors="replace")
