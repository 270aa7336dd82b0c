"""The coordinator with many agents: how soon all have their ranks, and what it costs while nothing happens.

The coordinator is a process of its own, so that its memory and CPU are its own; the agents are another one.
"""

import asyncio
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.agents import Crowd
from benchmarks.processes import cpu_seconds, memory_mb
from benchmarks.table import Row, load, spread
from pytorchjob_operator.kube import certificate

_ROOT = Path(__file__).parents[1]
_STEADY_SECONDS = 20.0
_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Sample:
    """What one coordinator showed."""

    joined: float
    joining_cpu: float
    again: float
    again_cpu: float
    memory: float
    peak: float
    steady: float
    """CPU while all beat, as a part of one core."""


async def measure(agents: int, repeat: int) -> list[Row]:
    """The same without and with TLS."""
    rows = []
    for tls in (False, True):
        before, samples = load(), [await _sample(agents, tls) for _ in range(repeat)]
        rows += _rows(agents, tls, samples, f"{before} to {load()}", repeat)
    return rows


def _rows(agents: int, tls: bool, samples: list[Sample], loads: str, repeat: int) -> list[Row]:
    name = f"{agents} agents, {'TLS' if tls else 'plain'}: "
    command = f"python -m benchmarks rendezvous --agents {agents} --repeat {repeat}"
    shown = [
        ("connect, join, all have a rank", [sample.joined for sample in samples], ("s", 2), "1 s on one core"),
        ("the same, the coordinator's CPU", [sample.joining_cpu for sample in samples], ("s", 2), ""),
        ("a worker fails, all have their next rank", [sample.again for sample in samples], ("s", 2), "1 s"),
        ("a worker fails: the coordinator's CPU", [sample.again_cpu for sample in samples], ("s", 2), ""),
        ("coordinator's memory", [sample.memory for sample in samples], ("MB", 0), "< 150 MB"),
        ("coordinator's memory at its peak", [sample.peak for sample in samples], ("MB", 0), "< 150 MB"),
        (
            "coordinator's CPU while all send heartbeats",
            [sample.steady * 100 for sample in samples],
            ("% of a core", 1),
            "",
        ),
    ]
    return [
        Row(name + what, spread(values, *unit), "", "", target, command, loads, {"ours": values})
        for what, values, unit, target in shown
    ]


async def _sample(agents: int, tls: bool) -> Sample:
    with tempfile.TemporaryDirectory() as directory, _coordinator(agents, directory if tls else "") as (pid, port):
        trust = None
        if tls:
            trust = ssl.create_default_context(cafile=f"{directory}/tls.crt")
        async with asyncio.timeout(_LIMIT_SECONDS):
            crowd = Crowd(agents)
            started, cpu = time.monotonic(), cpu_seconds(pid)
            await crowd.dial(port, trust)
            joined, joining_cpu = time.monotonic() - started, cpu_seconds(pid) - cpu
            started, cpu = time.monotonic(), cpu_seconds(pid)
            await crowd.fail()
            again, again_cpu = time.monotonic() - started, cpu_seconds(pid) - cpu
            await asyncio.sleep(2.0)
            cpu = cpu_seconds(pid)
            await asyncio.sleep(_STEADY_SECONDS)
            steady = (cpu_seconds(pid) - cpu) / _STEADY_SECONDS
            memory, peak = memory_mb(pid), memory_mb(pid, "VmHWM")
            await crowd.leave()
        return Sample(joined, joining_cpu, again, again_cpu, memory, peak, steady)


@contextmanager
def _coordinator(agents: int, directory: str) -> Iterator[tuple[int, int]]:
    """A coordinator in a process of its own: its pid and port."""
    if directory:
        for name, text in zip(("tls.crt", "tls.key"), certificate.make(datetime.now(UTC)), strict=True):
            Path(directory, name).write_bytes(text)
    command = [sys.executable, "-m", "benchmarks.coordinator", str(agents), directory]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()
