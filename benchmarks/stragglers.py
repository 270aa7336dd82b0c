"""How long it takes until a slow rank is named, and which ranks are named by mistake: a local run of three ranks.

python -m benchmarks.stragglers --repeat 10 --quiet 120

All that a slow rank does takes a quarter longer, as with a fifth less of a processor. Another rank is slow in each
repetition. Then no rank is slow for `--quiet` seconds. Each line of stragglers.jsonl is one of
these.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import yaml

RAW = Path(__file__).with_suffix(".jsonl")
RANKS = 3
FOUND = "StragglerFound: Rank "
PATIENCE = 90.0
"""Seconds after which a repetition has failed."""
SCRIPT = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
me = str(dist.get_rank())
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
    def forward(self, x):
        time.sleep(0.1)
        if open("slow").read() == me:
            time.sleep(0.25 * (time.monotonic() - begun))
        return self.layer(x)
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begun = time.monotonic()
while True:
    model(torch.ones(16, 64)).sum().backward()
    optimizer.step()
    begun = time.monotonic()
"""


def job() -> dict[str, object]:
    """A master and two workers of the script."""
    command = ["pytorchjob-agent", "run", "--", "--nproc-per-node", "1", "train.py"]
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    container = {"name": "pytorch", "image": "none", "command": command, "env": env}
    template = {"spec": {"containers": [container]}}
    roles = {"Master": {"template": template}, "Worker": {"replicas": RANKS - 1, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "ranks"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


class Training:
    """A training whose slow rank can be changed."""

    def __init__(self, folder: Path, output: IO[str]) -> None:
        self._slow = folder / "slow"
        self._named: queue.Queue[tuple[float, int]] = queue.Queue()
        self.began = threading.Event()
        threading.Thread(target=self._read, args=(output,), daemon=True).start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            if FOUND in line:
                self._named.put((time.monotonic(), int(line.partition(FOUND)[2].split()[0])))
            if ": Training" in line:
                self.began.set()

    def slow_down(self, rank: int | None) -> None:
        """Let this rank be slow from now on, and all others fast."""
        new = self._slow.with_suffix(".new")
        new.write_text("" if rank is None else str(rank))
        new.replace(self._slow)

    def named(self, seconds: float) -> Iterator[tuple[float, int]]:
        """Yield the time and the rank of each event within these seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                yield self._named.get(timeout=left)
            except queue.Empty:
                return


@contextmanager
def training() -> Iterator[Training]:
    """Start the training; it ends with this context."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        (folder / "slow").touch()
        (folder / "job.yaml").write_text(yaml.safe_dump(job()))
        command = [sys.executable, "-m", "pytorchjob", "run", "-f", "job.yaml", "--grace", "2"]
        process = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        try:
            yield Training(folder, process.stdout)
        finally:
            process.terminate()
            process.wait()


def repeat(trained: Training, rank: int) -> dict[str, object]:
    """Slow a rank down until it is named."""
    trained.slow_down(rank)
    begun, others = time.monotonic(), []
    for at, named in trained.named(PATIENCE):
        if named == rank:
            return {"slow": rank, "seconds": round(at - begun, 1), "by_mistake": others}
        others.append(named)
    return {"slow": rank, "seconds": None, "by_mistake": others}


def measure(repetitions: int, quiet: float) -> Iterator[dict[str, object]]:
    """Yield the repetitions, then the quiet time."""
    with training() as trained:
        if not trained.began.wait(PATIENCE):
            raise RuntimeError("the training did not begin: run `pytorchjob run` by hand to see why")
        yield {"equal": 30, "by_mistake": [rank for _, rank in trained.named(30)]}
        for number in range(repetitions):
            yield repeat(trained, number % RANKS)
        trained.slow_down(None)
        yield {"equal": quiet, "by_mistake": [rank for _, rank in trained.named(quiet)]}


def main() -> None:
    """Measure, print each line, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--quiet", type=float, default=120.0, help="seconds")
    options = parser.parse_args()
    with RAW.open("a") as raw:
        for found in measure(options.repeat, options.quiet):
            at = datetime.now(UTC).isoformat(timespec="seconds")
            line = json.dumps({"at": at, "load": round(os.getloadavg()[0], 1), **found})
            print(line, flush=True)
            raw.write(line + "\n")


if __name__ == "__main__":
    main()
