"""An honest fetch at each port of an agent, undisturbed and beside connections that ask for nothing.

The agent's ports, the honest client and the others are processes of their own. The others come again when they are
displaced: a port keeps some hundreds of them. They stay silent, send a byte now and then, or stop halfway in TLS.
"""

import asyncio
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.table import Row, load, ratio, spread
from pytorchjob_agent.caches.directory import REST_NS, CacheFolder
from pytorchjob_agent.caches.exchange import CacheServer, Fetch
from pytorchjob_agent.caches.settings import INDUCTOR
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.saves import copies
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import SaveId, choice_of
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.system.metrics_server import MetricsServer
from pytorchjob_operator.kube import certificate
from tests.attacks.flooding import SILENT

CROWDS = (16, 1000, 5000)
_ADDRESSES, _PER_SECOND = 64, 500
_FETCHES = 15
_BYTES = 1_000_000
_KEY = "key"
_ROUND = RoundId(1, 1)


async def measure(repeat: int) -> list[Row]:
    """Each port and each crowd in turns with the undisturbed port."""
    return await asyncio.to_thread(_measure, repeat)


def _measure(repeat: int) -> list[Row]:
    _raise_open_files()
    before, texts = load(), certificate.make_for_members(datetime.now(UTC), 2)
    keys = [RoundKeys("secret", text, _ROUND, rank) for rank, text in enumerate(texts)]
    found: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, _agent(Path(name) / "agent", keys[0]) as (ports, save):
        for _ in range(repeat):
            for what, fetch in _clients(Path(name), keys[1], ports, save).items():
                for size in CROWDS:
                    alone, crowded = found.setdefault((what, size), ([], []))
                    alone.append(_median(fetch))
                    with _crowd(ports[what], size):
                        crowded.append(_median(fetch))
    return [_row(*case, *samples, repeat, f"{before} to {load()}") for case, samples in found.items()]


def _row(what: str, size: int, alone: list[float], crowded: list[float], repeat: int, seen: str) -> Row:
    return Row(
        f"a fetch at an agent's port for {what}, beside {size} idle connections",
        spread(crowded, "ms", 1),
        f"{spread(alone, 'ms', 1)} undisturbed",
        ratio(crowded, alone),
        "<= 2 x undisturbed",
        f"python -m benchmarks ports --repeat {repeat}",
        seen,
        {"ours": crowded, "undisturbed": alone},
    )


def _median(fetch: Callable[[], object]) -> float:
    """The median of some fetches, in milliseconds."""
    times = []
    for _ in range(_FETCHES):
        started = time.perf_counter()
        fetch()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def _raise_open_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _agent(folder: Path, keys: RoundKeys) -> Iterator[tuple[Mapping[str, int], Manifest]]:
    """The ports of an agent in a process of its own, and the save that it holds."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(folder, keys, theirs), daemon=True)
    process.start()
    yield ours.recv()
    ours.send(None)
    process.join()


def _serve(folder: Path, keys: RoundKeys, pipe: Connection) -> None:
    held, caches = HeldSaves(folder / "saves", "job", 10**9), CacheFolder(folder / "caches")
    saves, server = SaveServer(held, "127.0.0.1"), CacheServer(caches, _KEY, "127.0.0.1")
    metrics = MetricsServer(0, lambda: "# HELP pytorchjob_agent_step Steps.\n" * 100)
    content = os.urandom(_BYTES)
    cached = caches.root / INDUCTOR / "ab" / "kernel.py"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content)
    rested = time.time_ns() - 2 * REST_NS
    os.utime(cached, ns=(rested, rested))
    new = held.new_folder()
    (new / "0").write_bytes(content)
    file = HeldFile("latest.pt", _BYTES, os.stat(new / "0").st_mtime_ns, sha256(content).hexdigest())
    save = Manifest("job", SaveId(_ROUND, 0, 1), (file,))
    held.keep(save, new)
    for each in (saves, server):
        each.use(keys)
    pipe.send(({"checkpoints": saves.port, "caches": server.port, "metrics": metrics.port}, save))
    pipe.recv()


def _clients(folder: Path, keys: RoundKeys, ports: Mapping[str, int], save: Manifest) -> dict[str, Callable[[], None]]:
    """What an honest peer does at each port."""

    def get() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            held = HeldSaves(Path(name), "job", 10**9)
            copies.get(held, choice_of(save.held()), 0, ("127.0.0.1", ports["checkpoints"], 0), keys)
            held.close()

    def fetch() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            fetching = Fetch(CacheFolder(Path(name)), _KEY, keys)
            fetching.run(("127.0.0.1", ports["caches"]))
            assert fetching.bytes == _BYTES

    def scrape() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics", timeout=60) as answer:
            assert answer.read()

    return {"checkpoints": get, "caches": fetch, "metrics": scrape}


@contextmanager
def _crowd(port: int, size: int) -> Iterator[None]:
    """So many connections from other addresses, until the end."""
    numbers = map(str, (port, size, min(_ADDRESSES, size), _PER_SECOND, SILENT))
    command = [sys.executable, "-m", "tests.attacks.flooding", *numbers]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline(), "the others could not connect"
        try:
            yield
        finally:
            process.stdin.close()
