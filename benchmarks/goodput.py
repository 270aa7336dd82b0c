"""The ledger of a scripted life against an outside clock: start, train, save, crash, load, repeat, hang, suspend, end.

The outside clock is what the script has noted (`scripted_life`), the time at which this benchmark asks for the
suspension and for its end, the time at which `pytorchjob run` prints the first stack of a hang and the job's end, and
the kernel's notice that the last worker has ended (`process_ends`).
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.process_ends import ENDED
from benchmarks.scripted_life import BORN, JOB, LINES, SUSPEND_ME, write
from benchmarks.table import Row, load, spread

_ROOT = Path(__file__).parents[1]
_AT_ONCE = 10
"""Lives at the same time: most of a life is sleep."""
_APART_SECONDS = 4.0
"""Between the starts of two lives. In step, ten lives would start, crash and end together, and wait for each other."""
_LIMIT_SECONDS = 400
_SUSPENDED_SECONDS = 6.0
_RECOVERY, _DETECTION = "infrastructureRecoveryFromDisruption", "detection"
"""The outside clock cannot separate them: it sees when a worker is killed, and when the next one is born."""
_NAMES = {
    "running": "running",
    "programStartup": "start",
    "unproductiveCheckpointSaveTime": "saves",
    "unproductiveCheckpointRestoreTime": "loads",
    "wastedProgressFromDisruption": "replayed steps",
    _RECOVERY: "detection and recovery",
    "hung": "hung",
    "waitingForPods": "waiting for pods",
    "suspended": "suspended",
    "other": "the end",
}
_OF_INTERVAL = {
    ("created", "placed"): "waitingForPods",
    ("resumed", "placed"): "waitingForPods",
    ("suspended", "resumed"): "suspended",
    ("hangs", "recognised"): "hung",
    ("recognised", "born"): _RECOVERY,
    ("crashes", "born"): _RECOVERY,
    ("loads", "loaded"): "unproductiveCheckpointRestoreTime",
    ("step", "saved"): "unproductiveCheckpointSaveTime",
    (ENDED, "over"): "other",
}
"""By what happened before and after an interval. All others end with a step, or lead to the first one."""
Line = tuple[str, int, float]
"""What happened, the step, and when: seconds since 1970."""


@dataclass
class Clock:
    """What is seen of a life from outside, besides the script's own lines."""

    lines: list[Line] = field(default_factory=list)

    def saw(self, what: str) -> None:
        """Note that this happens now."""
        self.lines.append((what, 0, time.time()))

    def read(self, printed: str) -> None:
        """Note what a line of the run means."""
        known = {what for what, _, _ in self.lines}
        if "- SuccessfulCreatePod" in printed and "created" not in known:
            self.saw("created")
        elif "most recent call first" in printed and "recognised" not in known:
            self.saw("recognised")
        elif "- PyTorchJobSucceeded" in printed:
            self.saw("over")


def outside(lines: list[Line]) -> dict[str, float]:
    """The seconds of each class, by all that was noted."""
    found = dict.fromkeys(_NAMES, 0.0)
    furthest, highest, started, trained = 0, 0, False, False
    for (before, _, since), (what, step, at) in pairwise(_told(lines)):
        steps = "running" if highest >= furthest else "wastedProgressFromDisruption"
        starts = _RECOVERY if before == "placed" and trained else "programStartup"
        found[_OF_INTERVAL.get((before, what), steps if started else starts)] += at - since
        if what == "step":
            started, highest, trained = True, step, True
        elif what == "born":
            started, furthest, highest = False, max(furthest, highest), 0
        elif what == "suspended":
            started = False
    return found


def _told(lines: list[Line]) -> Iterator[Line]:
    """Yield the lines by time, without those of workers that end because the job is suspended, or before the end."""
    suspended, over = False, max((at for what, _, at in lines if what == ENDED), default=0.0)
    for line in sorted(lines, key=lambda line: line[2]):
        if line[0] == ENDED and line[2] < over:
            continue
        if not suspended or line[0] == "resumed":
            yield line
        suspended = line[0] == "suspended" if not suspended else line[0] != "resumed"


async def live(directory: Path) -> tuple[dict[str, float], dict[str, float]]:
    """One life: the seconds of each class by the ledger, and by the outside clock."""
    write(directory)
    clock, pipe = Clock(), asyncio.subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": f"{_ROOT / 'operator'}:{_ROOT}", "TMPDIR": str(directory)}
    command = [sys.executable, "-m", "benchmarks.suspendable", JOB]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=env, stdout=pipe, stderr=pipe, limit=2**20
    )
    watching = [sys.executable, "-m", "benchmarks.process_ends", LINES]
    watcher = await asyncio.create_subprocess_exec(*watching, cwd=directory, env=env, stdin=pipe)
    assert watcher.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out = asyncio.create_task(process.stdout.read())
    suspension, text = None, ""
    async for line in process.stderr:
        clock.read(line.decode())
        text += line.decode()
        if BORN in line.decode():
            watcher.stdin.write(line.decode().rpartition(BORN)[2].encode())
        if SUSPEND_ME in line.decode():
            suspension = asyncio.create_task(suspend(process, clock))
    assert await process.wait() == 0, text
    assert suspension is not None, text
    watcher.stdin.close()
    assert await watcher.wait() == 0
    seconds = json.loads(await out)["status"]["goodput"]["seconds"]
    clock.lines += [tuple(json.loads(line)) for line in (directory / LINES).read_text().splitlines()]
    booked = {name: seconds.get(name, 0.0) for name in _NAMES}
    booked[_RECOVERY] += seconds.get(_DETECTION, 0.0)
    return booked, outside(clock.lines)


async def suspend(process: Process, clock: Clock) -> None:
    """Suspend the job, and resume it."""
    clock.saw("suspended")
    process.send_signal(signal.SIGHUP)
    await asyncio.sleep(_SUSPENDED_SECONDS)
    clock.saw("resumed")
    process.send_signal(signal.SIGHUP)


async def measure(repeat: int) -> list[Row]:
    """Each class of the ledger, and the sum, against the outside clock."""
    before, turns = load(), asyncio.Semaphore(_AT_ONCE)

    async def once(number: int) -> tuple[dict[str, float], dict[str, float]]:
        async with turns:
            await asyncio.sleep(number * _APART_SECONDS if number < _AT_ONCE else 0.0)
            with tempfile.TemporaryDirectory() as directory:
                return await asyncio.wait_for(live(Path(directory)), _LIMIT_SECONDS)

    found = await asyncio.gather(*(once(number) for number in range(repeat)))
    shown = f"{before} to {load()}"
    return [*rows([ours for ours, _ in found], [other for _, other in found], shown, repeat)]


def rows(ours: list[dict[str, float]], clock: list[dict[str, float]], shown: str, repeat: int) -> Iterator[Row]:
    """A row for each class that the outside clock knows, and for the sum."""
    for name, words in {**_NAMES, "": "the sum"}.items():
        ledger = [each[name] if name else sum(each.values()) for each in ours]
        outer = [each[name] if name else sum(each.values()) for each in clock]
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
