"""`pytorchjob run` of the send and receive example, against bare torchrun with as many processes, in turns."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.table import Row, load, ratio, spread

_ROOT = Path(__file__).parents[1]
_BIN = Path(sys.executable).parent
_EXAMPLE = "examples/simple"
_PROCESSES = 4
"""As many as the example has replicas."""
_LIMIT_SECONDS = 300


async def measure(repeat: int) -> list[Row]:
    """Whole wall time of both commands."""
    ours = [str(_BIN / "pytorchjob"), "run", "-f", f"{_EXAMPLE}/pytorchjob.yaml"]
    bare = [str(_BIN / "torchrun"), f"--nproc-per-node={_PROCESSES}", f"{_EXAMPLE}/send_recv.py"]
    before, ours_seconds, bare_seconds = load(), list[float](), list[float]()
    for command in (ours, bare):
        await _seconds(command)  # fills the page cache and writes the byte code
    for _ in range(repeat):
        bare_seconds.append(await _seconds(bare))
        ours_seconds.append(await _seconds(ours))
    yardstick = f"{spread(bare_seconds)} torchrun"
    shown = ratio(ours_seconds, bare_seconds)
    row = Row(
        f"`pytorchjob run` of {_EXAMPLE}, {_PROCESSES} processes",
        spread(ours_seconds),
        yardstick,
        shown,
        "< 2 x torchrun",
        f"python -m benchmarks local --repeat {repeat}",
        f"{before} to {load()}",
        {"ours": ours_seconds, "torchrun": bare_seconds},
    )
    return [row]


async def _seconds(command: list[str]) -> float:
    # The example sets it for its replicas; torchrun would set it too, and say so.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{_BIN}:{os.environ['PATH']}"}
    started = time.monotonic()
    await asyncio.to_thread(
        subprocess.run, command, cwd=_ROOT, env=env, check=True, capture_output=True, timeout=_LIMIT_SECONDS
    )
    return time.monotonic() - started
