"""How long it takes until a throttled rank is named, and which ranks are named by mistake: a local run of three ranks.

python -m benchmarks.stragglers --repeat 10 --weight 64
python -m benchmarks.stragglers --repeat 0 --equal 3600 --weight 64

In each repetition the kernel gives another rank 20 % less CPU time than it used before (`throttle`), so that everything
takes it a quarter longer. In the equal time no rank is throttled. Each line of stragglers.jsonl is one of these.
`--weight` keeps other work of the machine away from the ranks, as requests of CPU do for pods.
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
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import IO

import yaml

from benchmarks.processes import exact_cpu_seconds, waited_seconds
from benchmarks.table import machine
from benchmarks.throttle import Throttle

RAW = Path(__file__).with_suffix(".jsonl")
RANKS = 3
FOUND = "StragglerFound: Rank "
PATIENCE = 90.0
"""Seconds after which a repetition has failed."""
LEFT = 0.8
"""The part of its CPU time that a throttled rank keeps."""
SETTLE = 20.0
"""Seconds without a throttle before each repetition. In them it is measured how much CPU time the next rank uses."""
SAMPLE = 5.0
SCRIPT = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
matrix = torch.randn(384, 384) / 384
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
    def forward(self, x):
        time.sleep(0.06)  # the input comes
        work = matrix
        for _ in range(30):
            work = work @ matrix
        return self.layer(x) + work[0, 0]
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with open("new" + str(dist.get_rank()), "w") as file:
    file.write(str(os.getpid()))
os.replace(file.name, "pid" + str(dist.get_rank()))
while True:
    model(torch.ones(16, 64)).sum().backward()
    optimizer.step()
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
    """A training whose ranks can be throttled."""

    def __init__(self, output: IO[str]) -> None:
        self._named: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last: deque[str] = deque(maxlen=50)
        self.pids: list[int] = []
        threading.Thread(target=self._read, args=(output,), daemon=True).start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._last.append(line)
            if FOUND in line:
                self._named.put((time.monotonic(), int(line.partition(FOUND)[2].split()[0])))

    def begin(self, folder: Path) -> None:
        """Wait until all ranks train."""
        files, until = [folder / f"pid{rank}" for rank in range(RANKS)], time.monotonic() + PATIENCE
        while not all(file.exists() for file in files):
            if time.monotonic() > until:
                raise RuntimeError(f"the training did not begin:\n{''.join(self._last)}")
            time.sleep(0.2)
        self.pids = [int(file.read_text()) for file in files]

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
        (folder / "job.yaml").write_text(yaml.safe_dump(job()))
        command = [sys.executable, "-m", "pytorchjob", "run", "-f", "job.yaml", "--grace", "2"]
        process = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        try:
            trained = Training(process.stdout)
            trained.begin(folder)
            yield trained
        finally:
            process.terminate()
            process.wait()


def repeat(trained: Training, throttle: Throttle, rank: int) -> dict[str, object]:
    """Throttle a rank until it is named. The throttle of the rank before has just ended."""
    pid = trained.pids[rank]
    used, begun = exact_cpu_seconds(pid), time.monotonic()
    others = [named for _, named in trained.named(SETTLE)]
    cores = (exact_cpu_seconds(pid) - used) / (time.monotonic() - begun)
    throttle.limit(pid, LEFT * cores)
    begun, seconds = time.monotonic(), None
    for at, named in trained.named(PATIENCE):
        if named == rank:
            seconds = round(at - begun, 1)
            break
        others.append(named)
    throttle.limit(pid, None)
    return {"throttled": rank, "cores": round(cores, 3), "limit": LEFT, "seconds": seconds, "by_mistake": others}


def equal(trained: Training, seconds: float) -> dict[str, object]:
    """Let equal ranks train; `waited` is which part of the time each rank waited for a processor."""
    by_mistake, loads, begun = [], [os.getloadavg()[0]], time.monotonic()
    waits: deque[tuple[float, list[float]]] = deque([sample(trained)], maxlen=5)
    while (left := begun + seconds - time.monotonic()) > 0:
        for at, rank in trained.named(min(SAMPLE, left)):
            waited = spent(waits[0], sample(trained))
            by_mistake.append({"rank": rank, "after": round(at - begun, 1), "waited": waited})
        waits.append(sample(trained))
        loads.append(os.getloadavg()[0])
    lowest, middle, highest = (round(load, 1) for load in (min(loads), median(loads), max(loads)))
    return {"equal": seconds, "by_mistake": by_mistake, "loads": {"min": lowest, "median": middle, "max": highest}}


def sample(trained: Training) -> tuple[float, list[float]]:
    """Return the time, and for how long each rank has waited for a processor."""
    return time.monotonic(), [waited_seconds(pid) for pid in trained.pids]


def spent(before: tuple[float, list[float]], after: tuple[float, list[float]]) -> list[float]:
    """Return which part of the time between two samples each rank waited."""
    seconds = max(after[0] - before[0], 0.001)
    return [round((new - old) / seconds, 2) for old, new in zip(before[1], after[1], strict=True)]


def measure(repetitions: int, seconds: float, weight: int) -> Iterator[dict[str, object]]:
    """Yield the equal time, then the repetitions."""
    with closing(Throttle()) as throttle, training() as trained:
        for pid in trained.pids:
            throttle.add(pid)
            throttle.weigh(pid, weight)
        if seconds:
            yield equal(trained, seconds)
        for number in range(repetitions):
            yield repeat(trained, throttle, number % RANKS)


def main() -> None:
    """Measure, print each line, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--equal", type=float, default=0.0, help="seconds without a throttle")
    parser.add_argument("--weight", type=int, default=1, help="of a rank beside other processes of the machine")
    options = parser.parse_args()
    command = f"python -m benchmarks.stragglers {' '.join(sys.argv[1:])}"
    with RAW.open("a") as raw:
        for found in measure(options.repeat, options.equal, options.weight):
            at = datetime.now(UTC).isoformat(timespec="seconds")
            load = round(os.getloadavg()[0], 1)
            line = json.dumps({"at": at, "load": load, **found, "machine": machine(), "command": command})
            print(line, flush=True)
            raw.write(line + "\n")
            raw.flush()


if __name__ == "__main__":
    main()
