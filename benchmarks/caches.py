"""The first step of a compiled model: without a cache, in a restarted container, and in a new pod that asks a peer."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.table import Row, load, ratio, spread
from pytorchjob_agent.caches import pod, settings
from pytorchjob_agent.caches.directory import REST_NS, CacheFolder
from pytorchjob_agent.caches.exchange import CacheServer, Fetch
from pytorchjob_agent.exchange.round_keys import RoundKeys

_KEY, _KEYS = "key", RoundKeys("secret")
_LIMIT_SECONDS = 900
_SCRIPT = """
import time
import torch
from torch._dynamo.utils import counters

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
model = torch.compile(torch.nn.Sequential(layer, torch.nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
began = time.monotonic()
model(torch.randn(4, 16, 64)).pow(2).mean().backward()
optimizer.step()
print(time.monotonic() - began, counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


async def measure(repeat: int) -> list[Row]:
    """The three starts in turns."""
    return await asyncio.to_thread(_measure, repeat)


def _measure(repeat: int) -> list[Row]:
    before = load()
    cold, restart, new, fetch, size = (list[float]() for _ in range(5))
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as name:
            first, second = _Pod(Path(name) / "first"), _Pod(Path(name) / "second")
            cold.append(first.step(hits=False))
            restart.append(first.step(hits=True))
            time.sleep(REST_NS / 1e9)
            seconds, count = _fetch(first, second)
            fetch.append(seconds)
            size.append(count)
            new.append(second.step(hits=True) + seconds)
    return _rows({"ours": new, "restart": restart, "cold": cold, "fetch": fetch, "bytes": size}, repeat, before)


class _Pod:
    """The caches and the temporary folder of one pod."""

    def __init__(self, root: Path) -> None:
        self.folder = CacheFolder(root / "caches")
        (root / "tmp").mkdir()
        pod.link_headers(root / "tmp", self.folder)
        found = settings.variables(str(self.folder.root), {}, has_hub=True)
        self._env = {**os.environ, **found, "TMPDIR": str(root / "tmp"), "OMP_NUM_THREADS": "1"}

    def step(self, *, hits: bool) -> float:
        """Return the seconds of the first step of a new process."""
        command = [sys.executable, "-c", _SCRIPT]
        done = subprocess.run(
            command, env=self._env, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_SECONDS, check=True
        )
        seconds, hit, miss = done.stdout.split()
        assert (int(hit) > 0, int(miss) > 0) == (hits, not hits), f"{hit} hits, {miss} misses"
        return float(seconds)


def _fetch(first: _Pod, second: _Pod) -> tuple[float, float]:
    """Return the seconds and the bytes of the fetch."""
    server = CacheServer(first.folder, _KEY, "127.0.0.1")
    server.use(_KEYS)
    fetch, began = Fetch(second.folder, _KEY, _KEYS), time.monotonic()
    try:
        fetch.run(("127.0.0.1", server.port))
    finally:
        server.close()
    return time.monotonic() - began, float(fetch.bytes)


def _rows(samples: Mapping[str, list[float]], repeat: int, before: str) -> list[Row]:
    notes = (f"python -m benchmarks caches --repeat {repeat}", f"{before} to {load()}")
    ours, restart, cold = samples["ours"], samples["restart"], samples["cold"]
    what = "first step of a compiled model in a new pod, with the caches of a peer"
    target = "as in a restarted container"
    return [
        Row(what, spread(ours), f"{spread(cold)} without", ratio(ours, cold), "", *notes, samples),
        Row(
            f"{what}, beside a restart",
            spread(ours),
            f"{spread(restart)} restarted",
            ratio(ours, restart),
            target,
            *notes,
            samples,
        ),
    ]
