"""How soon a round forms while thousands of sockets without credentials besiege the coordinator.

python -m benchmarks.flood [ROUNDS]

A round of eight agents forms again and again: undisturbed, and during a flood of 5,000 silent, slow and half-TLS
sockets from one and from fifty addresses (`tests/attacks/flooding.py`: 1,000 are opened each second, also instead of
those that were closed). Each round is a line of flood.jsonl, with the coordinator's memory and descriptors.
"""

import asyncio
import contextlib
import json
import os
import platform
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.attacks import percentile
from benchmarks.processes import memory_mb
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.thread import Coordinator
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.rounds.values import Policy
from tests.attacks.agents import calm_agent, form_round
from tests.coordinator.talking import KEY, pods

_ROOT = Path(__file__).parents[1]
_RAW = Path(__file__).with_suffix(".jsonl")
_MEMBERS, _SOCKETS, _PER_SECOND = 8, 5000, 1000
_CALM = "calm"
_JOBS = 1000


def serve(folder: str) -> None:
    """A coordinator and nothing else: prints its port, serves until its input ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    with contextlib.suppress(ImportError):  # an earlier state of the project has fixed limits
        from pytorchjob_operator.coordinator.capacity import raise_open_files

        raise_open_files()
    coordinator = Coordinator(KeyedTokens(KEY), 1, context)
    for number in range(_JOBS):
        coordinator.apply(f"job-{number}", Sync(Policy(_MEMBERS, _MEMBERS), pods(_MEMBERS)))
    coordinator.apply(_CALM, Sync(Policy(1, 1), pods(1)))
    print(coordinator.start("127.0.0.1", 0), flush=True)
    sys.stdin.read()
    coordinator.stop()


@contextmanager
def _process(*arguments: object) -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-m", *map(str, arguments)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline()
        finally:
            process.stdin.close()
            process.wait()


def run(rounds: int) -> list[dict[str, Any]]:
    """Rounds without a flood, with one, without one, with another one, and without one again."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in zip(("tls.crt", "tls.key"), certificate.make(datetime.now(UTC)), strict=True):
            Path(folder, name).write_bytes(text)
        trust = ssl.create_default_context(cafile=f"{folder}/tls.crt")
        with _process("benchmarks.flood", "serve", folder) as (pid, port):
            return asyncio.run(_measure(rounds, int(port), pid, trust))


async def _measure(rounds: int, port: int, pid: int, trust: ssl.SSLContext) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for addresses in (0, 1, 0, 50, 0):
        async with calm_agent(port, _CALM, trust) as calm, _flood(port, addresses):
            calm.begin()
            found += [await _round(port, trust, pid, addresses, len(found) + number) for number in range(rounds)]
            await asyncio.sleep(2.0)  # the bystander's figure needs some answers
            found[-1]["bystander_p99_ms"] = round(percentile(calm.attacked, 99), 2)
        await asyncio.sleep(1.0)
    return found


@asynccontextmanager
async def _flood(port: int, addresses: int) -> AsyncIterator[None]:
    if not addresses:
        yield
        return
    flood = _process("tests.attacks.flooding", port, _SOCKETS, addresses, _PER_SECOND)
    await asyncio.to_thread(flood.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(flood.__exit__, None, None, None)


async def _round(port: int, trust: ssl.SSLContext, pid: int, addresses: int, number: int) -> dict[str, Any]:
    started = time.monotonic()
    talkers = await form_round(port, f"job-{number}", _MEMBERS, trust)
    seconds = time.monotonic() - started
    for talker in talkers:
        talker.cut()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
        "flood_addresses": addresses,
        "seconds": round(seconds, 4),
        "memory_mb": round(memory_mb(pid), 1),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def summarize(found: list[dict[str, Any]]) -> str:
    """One line for each kind of flood."""
    lines, calm = [], statistics.median(row["seconds"] for row in found if not row["flood_addresses"])
    for addresses in (0, 1, 50):
        rows = [row for row in found if row["flood_addresses"] == addresses]
        seconds = [row["seconds"] for row in rows]
        middle = statistics.median(seconds)
        p99 = [row["bystander_p99_ms"] for row in rows if "bystander_p99_ms" in row]
        memory, files = max(row["memory_mb"] for row in rows), max(row["descriptors"] for row in rows)
        lines.append(
            f"{addresses} addresses: median {middle:.3f} s ({middle / calm:.2f} x),"
            f" max {max(seconds):.3f} s, n={len(rows)};"
            f" at most {memory:.0f} MB and {files} descriptors; bystander's p99 {p99} ms"
        )
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
        return
    found = run(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    _RAW.write_text("".join(json.dumps(row) + "\n" for row in found))
    print(summarize(found))


if __name__ == "__main__":
    main()
