"""The ledger of a scripted life against an outside clock: start, train, save, crash, load, repeat, hang, end.

The script notes the time of everything that it does, and the kernel has the start of its process. A hang is recognised
when `pytorchjob run` prints the first stack.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import yaml

from benchmarks.table import Row, load, spread
from tests.local.torch_beside import write_torch

_ROOT = Path(__file__).parents[1]
_AT_ONCE = 10
"""Lives at the same time: most of a life is sleep."""
_LIMIT_SECONDS = 300
_CRASH, _HANG, _STEPS, _EVERY = 45, 70, 90, 25
_HUNG_SECONDS = 8

LIFE = f"""
import json, os, signal, time
import torch
from pytorchjob_agent import progress

life = open("life", "a", buffering=1)

def wrote(what, step, at=None):
    life.write(json.dumps([what, step, time.time() if at is None else at]) + "\\n")

ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
born = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
wrote("born", 0, born)
lives = sum("born" in line for line in open("life"))
time.sleep(2)
first = 0
if os.path.exists("saved"):
    wrote("loads", 0)
    first = torch.load("saved")
    wrote("loaded", first)
for step in range(first + 1, {_STEPS} + 1):
    if lives == 1 and step == {_CRASH}:
        wrote("crashes", step)
        os.kill(os.getpid(), signal.SIGKILL)
    if lives == 2 and step == {_HANG}:
        wrote("hangs", step)
        time.sleep(1000)
    time.sleep(0.25)
    progress(step, total={_STEPS})
    wrote("step", step)
    if step % {_EVERY} == 0:
        torch.save(step, "new")
        os.replace("new", "saved")
        wrote("saved", step)
wrote("ends", {_STEPS})
os._exit(0)
"""
_RECOVERY, _DETECTION = "infrastructureRecoveryFromDisruption", "detection"
"""The outside clock cannot separate them: it sees when a worker is killed, and when the next one is born."""
_NAMES = {
    "productive": "productive",
    "programStartup": "start",
    "unproductiveCheckpointSaveTime": "saves",
    "unproductiveCheckpointRestoreTime": "loads",
    "wastedProgressFromDisruption": "replayed steps",
    _RECOVERY: "detection and recovery",
    "hung": "hung",
    "waitingForPods": "waiting for pods",
    "other": "the end",
}


@dataclass
class Clock:
    """What the outside clock saw of a life: seconds since 1970."""

    began: float = 0.0
    ended: float = 0.0
    recognised: float = 0.0
    """When the first stack of the hung worker was printed."""
    created: float = 0.0
    """When the pods were printed as created."""


def outside(lines: list[tuple[str, int, float]], clock: Clock) -> dict[str, float]:
    """The seconds of each class, by what the script has noted and what `pytorchjob run` printed."""
    found = dict.fromkeys(_NAMES, 0.0)
    furthest, started = 0, False
    found["programStartup"] += lines[0][2] - clock.created
    for (before, _, since), (what, step, at) in pairwise(lines):
        spent = at - since
        if what == "step" and started:
            found["productive" if step > furthest else "wastedProgressFromDisruption"] += spent
        elif what in ("step", "loads"):
            found["programStartup"] += spent
        elif what == "loaded":
            found["unproductiveCheckpointRestoreTime"] += spent
        elif what == "saved":
            found["unproductiveCheckpointSaveTime"] += spent
        elif what == "born":
            noticed = clock.recognised if before == "hangs" else since
            found["hung"] += noticed - since
            found[_RECOVERY] += at - noticed
            started, furthest = False, reached(lines, at)
        started = started or what == "step"
    found["other"] = clock.ended - lines[-1][2]
    return found


def reached(lines: list[tuple[str, int, float]], at: float) -> int:
    """The furthest step before this time."""
    return max(step for what, step, when in lines if what == "step" and when < at)


async def live(directory: Path) -> tuple[dict[str, float], dict[str, float]]:
    """One life: the seconds of each class by the ledger, and by the outside clock."""
    write(directory)
    clock = Clock(began=time.time())
    env = {**os.environ, "PYTHONPATH": str(_ROOT / "operator"), "TMPDIR": str(directory)}
    command = [sys.executable, "-m", "pytorchjob", "run", "-f", "job.yaml", "--output", "json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=env, stdout=pipe, stderr=pipe, limit=2**20
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out = asyncio.create_task(process.stdout.read())
    text = ""
    async for line in process.stderr:
        now, said = time.time(), line.decode()
        text += said
        if "SuccessfulCreatePod" in said:
            clock.created = now
        elif "most recent call first" in said and not clock.recognised:
            clock.recognised = now
        elif "Succeeded" in said and "PyTorchJobSucceeded" in said:
            clock.ended = now
    assert await process.wait() == 0, text
    seconds = json.loads(await out)["status"]["goodput"]["seconds"]
    lines = [tuple(json.loads(line)) for line in (directory / "life").read_text().splitlines()]
    booked = {name: seconds.get(name, 0.0) for name in _NAMES}
    booked[_RECOVERY] += seconds.get(_DETECTION, 0.0)
    return booked, outside(lines, clock)


def write(directory: Path) -> None:
    """Write the job, the script and what it imports."""
    (directory / "life.py").write_text(LIFE)
    write_torch(directory, save=1.5, load=2)
    container = {"name": "pytorch", "image": "none", "command": ["pytorchjob-agent", "run", "--", "life.py"]}
    template = {"spec": {"containers": [container]}}
    spec = {
        "nprocPerNode": "1",
        "agent": {"hang": {"progressSeconds": _HUNG_SECONDS}},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}},
    }
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "life"}, "spec": spec}
    (directory / "job.yaml").write_text(yaml.safe_dump(job))


async def measure(repeat: int) -> list[Row]:
    """Each class of the ledger, and the sum, against the outside clock."""
    before, turns = load(), asyncio.Semaphore(_AT_ONCE)

    async def once() -> tuple[dict[str, float], dict[str, float]]:
        async with turns:
            with tempfile.TemporaryDirectory() as directory:
                return await asyncio.wait_for(live(Path(directory)), _LIMIT_SECONDS)

    found = await asyncio.gather(*(once() for _ in range(repeat)))
    shown = f"{before} to {load()}"
    return [*rows([ours for ours, _ in found], [other for _, other in found], shown, repeat)]


def rows(ours: list[dict[str, float]], clock: list[dict[str, float]], shown: str, repeat: int) -> Iterator[Row]:
    """A row for each class that the outside clock knows, and for the sum."""
    for name, words in {**_NAMES, "": "the sum"}.items():
        ledger = [each[name] if name else sum(each.values()) for each in ours]
        outer = [each[name] if name else sum(each.values()) for each in clock]
        if not any(outer):
            continue
        errors = [100 * (booked - other) / other for booked, other in zip(ledger, outer, strict=True)]
        yield Row(
            f"the ledger of a scripted life: {words}",
            spread(ledger),
            f"{spread(outer)} outside clock",
            f"**{median(errors):+.1f} %** ({min(errors):+.1f} to {max(errors):+.1f})",
            "within 5 %" if name else "within 1 %",
            f"python -m benchmarks goodput --repeat {repeat}",
            shown,
            {"ledger": ledger, "clock": outer},
        )
