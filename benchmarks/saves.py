"""Checkpoints in memory: what a save costs the script, what they cost all the time, and what a lost pod costs.

Real agents and torch processes on this machine; a directory in memory stands for each pod's emptyDir. The storage is a
file that takes 20 MB in a second, as slow as the network storage that the targets name.
"""

import asyncio
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks import restores, transfers
from benchmarks.processes import exact_cpu_seconds
from benchmarks.steady import family
from benchmarks.table import Row, load, ratio, spread
from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.saves.directory import used
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.recognition import Local
from pytorchjob_agent.saves.taking import Writer
from pytorchjob_agent.saves.watcher import RoundOfSaves, SaveWatcher
from pytorchjob_operator.rounds.values import Policy
from tests.agent.rendezvous.conftest import JOB, Job, Pod, end, led
from tests.waiting import until

_NAME = "saving_script.py"
_SCRIPT = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(Path(__file__).parent / _NAME))
_STORAGE_RATE = 20e6
"""Bytes in a second."""
_LIMIT = 20_000_000_000
_WINDOW, _REST_WINDOW = 30.0, 240.0
"""Seconds. A watcher at rest reads a large directory only now and then."""
_SIZES = (20, 100, 400)
"""MB of a save."""
_KEPT_BY_SCRIPT = 2
_READERS = 4
_BUDGET = 8
"""Saves for which a pod needs memory, by the formula of docs/checkpoints.md with these settings."""
_SAVED = re.compile(r"saved \d+ memory=([\d.]+) plain=([\d.]+) storage=([\d.]+)")
_IN_PLACE = re.compile(r"(\d+) bytes are in place after ([\d.]+) s")
_AT = re.compile(r"step \d+ at ([\d.]+)")


async def measure(repeat: int, only: str = "") -> list[Row]:
    """All figures, or those of one part."""
    rows = []
    for name, part in PARTS.items():
        if only in ("", name):
            before = load()
            command = f"python -m benchmarks saves --repeat {repeat} --only {name}"
            rows += await asyncio.to_thread(part, repeat, (command, before))
    return rows


@contextmanager
def _job(members: int, **env: str) -> Iterator[Job]:
    """A job whose script saves to the memory of each pod."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, led(Path(name)) as job:
        job.policy = Policy(members, members)
        job.env.update(env, PET_NNODES=str(members))
        yield job


def _memory(job: Job, index: int, uid: str) -> Path:
    return job.folder / f"memory-{index}-{uid}"


def _start(job: Job, index: int, uid: str = "u", *, limit: int = _LIMIT, command: tuple[str, ...] = _SCRIPT) -> Pod:
    """Start a pod; `limit` of its memory in bytes, 0 for no checkpoints in memory."""
    memory = _memory(job, index, uid)
    rules = {CHECKPOINT: CheckpointRules(str(memory), limit).to_json()} if limit else {}
    return job.start(index, uid, command, FOLDER=str(memory), **rules)


def _start_all(job: Job, limit: int = _LIMIT) -> list[Pod]:
    pods = [_start(job, index, limit=limit) for index in range(job.policy.max_members)]
    for pod in pods:
        pod.says("starts from step")
    return pods


def _seen_by_the_script(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """Saves of 100 MB in turns: to the memory that the agent watches, to other memory, and to the storage."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as other,
        tempfile.TemporaryDirectory() as storage,
        _job(2, MEGABYTES="100", EVERY="4", OTHER=other, STORAGE=storage, STORAGE_RATE=str(_STORAGE_RATE)) as job,
    ):
        zero = _start_all(job)[0]
        until(lambda: len(_SAVED.findall(zero.text())) > repeat, 60 * repeat)
        found = [tuple(map(float, values)) for values in _SAVED.findall(zero.text())][1:]
    memory, plain, slow = (list(values) for values in zip(*found, strict=True))
    what = "a save of 100 MB as the script sees it, 2 members, one copy"
    return [
        Row(what, spread(memory), f"{spread(plain)} memory that no agent watches", ratio(memory, plain), "<= 1.2 x",
            *notes, {"ours": memory, "plain": plain}),
        Row(f"{what}: against storage", spread(memory), f"{spread(slow)} storage of 20 MB/s", ratio(memory, slow),
            "<= 1/20", *notes, {"ours": memory, "storage": slow}),
    ]  # fmt: skip


def _lost_pods(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """A pod is lost with its memory, rank 0's in every other turn: from which save do all continue?

    The script compares all numbers that it loads: with others it fails.
    """
    lost_steps, resumed, count = [], 0, 2 * repeat
    with _job(2, MEGABYTES="2", EVERY="2", EACH_RANK="1") as job:
        _start_all(job)
        for turn in range(count):
            index = turn % 2
            stays = job.pods[1 - index]
            stays.forget()
            until(lambda pod=stays: len(re.findall("saved", pod.text())) >= 3)  # type: ignore[misc]
            time.sleep(turn % 5 * 0.4)  # at any moment between two saves
            _lose(job, index)
            reached, complete = _steps(stays)[-1], _complete(job, 1 - index)
            new = _start(job, index, f"v{turn}")
            for pod in (stays, new):  # both, so that the next turn reads what belongs to it
                pod.says("starts from step")
            begun = int(re.findall(r"starts from step (\d+)", stays.text())[-1])
            resumed += begun >= complete  # later: the part of the pod that stays was complete a moment after the loss
            lost_steps.append(float(reached - begun))
    every = 2 / 0.05
    return [
        Row("a pod is lost with its memory, no storage, one copy: all continue from the newest complete save",
            f"{resumed} of {count}", "", "", "20 of 20", *notes, {"ours": [float(resumed)], "losses": [float(count)]}),
        Row("the same: steps lost", spread(lost_steps, "steps", 0), f"{every:.0f} steps between saves", "",
            "<= 1 interval", *notes, {"ours": lost_steps}),
    ]  # fmt: skip


def _lose(job: Job, index: int) -> None:
    pod = job.pods[index]
    end(pod)
    for memory in job.folder.glob(f"memory-{index}-*"):
        shutil.rmtree(memory)


def _complete(job: Job, holder: int) -> int:
    """The newest step of which a pod holds the parts of both ranks."""
    steps: dict[int, set[int]] = {0: set(), 1: set()}
    for path in job.folder.glob(f"memory-{holder}-*/.pytorchjob/*/manifest.json"):
        manifest = json.loads(path.read_text())
        steps[manifest["id"][1]] |= {
            int(name) for file in manifest["files"] for name in re.findall(r"step-(\d+)", file[0])
        }
    return max(steps[0] & steps[1], default=0)


def _steps(pod: Pod) -> list[int]:
    return [int(step) for step in re.findall(r"step (\d+) at", pod.text())]


def _restored(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """A pod with 1 GB of its own is lost: both parts come to its successor from the other pod's memory."""
    ours, bytes_ = [], 0
    with (
        _job(2, MEGABYTES="1000", EVERY="20", EACH_RANK="1") as job,
        ThreadPoolExecutor(_READERS) as storage_readers,  # they mostly rest, so they may read meanwhile
    ):
        reads = storage_readers.map(_read_slowly, [2 * 10**9] * repeat)
        zero, _ = _start_all(job)
        for turn in range(repeat):
            zero.forget()
            zero.says("saved")
            until(lambda: _copied(job), 120)
            _lose(job, 1)
            new = _start(job, 1, f"v{turn}")
            new.says("are in place")
            bytes_, seconds = next((int(size), float(took)) for size, took in _IN_PLACE.findall(new.text()))
            ours.append(seconds)
            new.says("starts from step [1-9]")
        storage = list(reads)
    return [
        Row(f"a pod is lost, 1 GB per rank: {bytes_ / 1e9:.1f} GB are in place, from its peer's memory", spread(ours),
            f"{spread(storage)} storage of 20 MB/s", ratio(ours, storage), "<= 1/5", *notes,
            {"ours": ours, "storage": storage}),
    ]  # fmt: skip


def _copied(job: Job) -> bool:
    """Return whether each pod holds the newest save of the other."""
    held = [[_newest(job, holder, owner) for holder in (0, 1)] for owner in (0, 1)]
    return all(first == second and first[-1] > 0 for first, second in held)


def _newest(job: Job, holder: int, owner: int) -> tuple[int, ...]:
    """The round and the number of the newest save of the owner that a pod holds."""
    names = [path.name for path in job.folder.glob(f"memory-{holder}-*/.pytorchjob/*_{owner}_*")]
    return max((tuple(map(int, re.split(r"[._]", name))) for name in names), default=(0,))


def _read_slowly(size: int) -> float:
    """Read a number of bytes at the storage's rate, in pieces of 1 MB."""
    began, left = time.monotonic(), size
    with Path("/dev/zero").open("rb") as file:
        while left > 0:
            left -= len(file.read(min(10**6, left)))
            time.sleep(max(began + (size - left) / _STORAGE_RATE - time.monotonic(), 0))
    return time.monotonic() - began


def _moved(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """A save of 1 GB between two processes, by the agents' requests and by a plain socket, in turns."""
    plain, fetched, sent = zip(
        *((transfers.plain(), transfers.fetched(), transfers.sent()) for _ in range(repeat)), strict=True
    )
    return [
        Row(f"a save of 1 GB {what}, over loopback with TLS", spread(ours),
            f"{spread(plain)} a plain socket, one connection, the same checksum", ratio(ours, plain), "<= 1.43 x",
            *notes, {"ours": [*ours], "plain": [*plain]})
        for what, ours in (("is restored from a peer", fetched), ("is copied to a peer without a limit", sent))
    ]  # fmt: skip


def _steady(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """Three members, a save of 100 MB every 10 s: the agents' CPU, and the speed of the training."""
    idle, kept, plain, costs = [], [], [], []
    for _ in range(repeat):
        cpu_off, speed_off = _window("10", kept=False)
        cpu_watching, _speed = _window("0", kept=True)
        cpu_saving, speed_on = _window("10", kept=True)
        idle.append((cpu_watching - cpu_off) * 100)
        costs.append((cpu_saving - cpu_off) * 100)
        kept.append(speed_on)
        plain.append(speed_off)
    return [
        Row("an agent that watches a directory, 3 members: its CPU besides copying", spread(idle, "% of a core"), "",
            "", "< 3 % of a core", *notes, {"ours": idle}),
        Row("the same, with a save of 100 MB every 10 s and one copy: CPU of each agent", spread(costs, "% of a core"),
            "", "", "", *notes, {"ours": costs}),
        Row("the same: steps in a second", spread(kept, "steps/s"), f"{spread(plain, 'steps/s')} without the field",
            ratio(kept, plain), ">= 0.98", *notes, {"ours": kept, "without": plain}),
    ]  # fmt: skip


def _window(every: str, *, kept: bool) -> tuple[float, float]:
    """Train for a while: the CPU of an agent as a share of one core, the mean of all; the steps in a second."""
    with _job(3, MEGABYTES="100", EVERY=every) as job:
        pods = _start_all(job, _LIMIT if kept else 0)
        time.sleep(12)  # the first save is over
        agents = [process for pod in pods for process in family(pod.process.pid, _NAME)]
        used, began = sum(map(exact_cpu_seconds, agents)), time.monotonic()
        time.sleep(_WINDOW)
        seconds = time.monotonic() - began
        share = (sum(map(exact_cpu_seconds, agents)) - used) / seconds / len(pods)
        steps = [float(at) for at in _AT.findall(pods[0].text()) if began <= float(at) <= began + seconds]
    return share, len(steps) / seconds


def _budgets(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """Each of two ranks saves, and keeps its two newest: the memory of a pod at most, and what travels for a save."""
    rows = []
    for megabytes in _SIZES:
        memory, network = zip(*(_spent(megabytes) for _ in range(min(repeat, 2))), strict=True)
        rows += [
            Row(f"memory of a pod at most, each rank saves {megabytes} MB, one copy", spread(memory, "saves"),
                f"{_BUDGET} saves by the formula", "", f"<= {_BUDGET}", *notes, {"ours": [*memory]}),
            Row(f"the same: bytes between pods for each save of a rank, {megabytes} MB", spread(network, "saves"),
                "1 save by the formula", "", "1", *notes, {"ours": [*network]}),
        ]  # fmt: skip
    return rows


def _spent(megabytes: int) -> tuple[float, float]:
    """The most memory of a pod, and the bytes that travel for one save of a rank, both in sizes of a save."""
    with _job(2, MEGABYTES=str(megabytes), EVERY="8", EACH_RANK="1") as job:
        size = megabytes * 1_000_000
        pods = _start_all(job, _BUDGET * size + 1_000_000)  # the files have more than the numbers
        until(lambda: _count(pods) >= 2 * _KEPT_BY_SCRIPT, 120)  # from now on the script removes saves, too
        until(lambda: _copied(job), 60)
        most, sent, saves = 0, _loopback(), _count(pods)
        while _count(pods) < saves + 2 * (_KEPT_BY_SCRIPT + 1) or not _copied(job):
            most = max(most, *(used(memory) for memory in job.folder.glob("memory-*")))
            time.sleep(0.02)
        assert not any("CheckpointMemoryFull" in pod.text() for pod in pods), "the budget is too small"
        return most / size, (_loopback() - sent) / (_count(pods) - saves) / size


def _count(pods: list[Pod]) -> int:
    """How many saves the ranks have made."""
    return sum(pod.text().count("saved ") for pod in pods)


def _loopback() -> int:
    """The bytes that the loopback interface has sent."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[9])


def _staged(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """How long saves of 256 MB with torch.distributed.checkpoint block their caller, into memory."""
    command = (sys.executable, "-W", "ignore", "-m", "benchmarks.staged_saves", str(repeat))
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ours, torchs, plain = (
        [*values] for values in zip(*(map(float, line.split()) for line in printed.splitlines()), strict=True)
    )
    what = "a save of 256 MB by the three lines blocks its caller, into memory"
    return [
        Row(what, spread(ours), f"{spread(torchs)} torch's asynchronous save", ratio(ours, torchs), "", *notes,
            {"ours": ours, "torch": torchs}),
        Row(f"{what}: against a plain one", spread(ours), f"{spread(plain)} torch's plain save", ratio(ours, plain), "",
            *notes, {"ours": ours, "plain": plain}),
    ]  # fmt: skip


def _members(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """A thousand members restore from two holders; what is fetched after a crash, and by a replaced pod."""
    size, holders = 1000, 2
    found = [restores.from_holders(size, holders) for _ in range(min(repeat, 2))]
    assert all(each.equal for each in found), "members start from different files"
    parts = [*zip(*([each / restores.SIZE for each in one.from_holders] for one in found), strict=True)]
    rows = [
        Row(f"{size} members restore from {holders} holders, in one process: saves that a holder sends",
            spread([value for part in parts for value in part], "saves", 0), f"{size - holders} members without it",
            "", "", *notes, {"ours": [value for part in parts for value in part]}),
        Row("the same: saves that any other member sends at most",
            spread([each.from_others / restores.SIZE for each in found], "saves", 0), "", "", "", *notes,
            {"ours": [each.from_others / restores.SIZE for each in found]}),
        Row("the same: members that a save passes until the last one has it",
            spread([float(each.levels) for each in found], "members", 0), "", "", "", *notes,
            {"ours": [float(each.levels) for each in found]}),
        Row("the same: until all members of the process have it",
            spread([each.seconds for each in found]), "", "", "", *notes, {"ours": [each.seconds for each in found]}),
    ]  # fmt: skip
    for size in (8, 64):
        crash, lost = restores.by_rank(size)
        rows += [
            Row(f"each of {size} ranks saves: parts fetched by all pods after a worker's crash",
                f"{crash / restores.SIZE:.0f}", "", "", "0", *notes, {"ours": [crash / restores.SIZE]}),
            Row(f"each of {size} ranks saves: parts fetched after a pod is lost", f"{lost / restores.SIZE:.0f}", "", "",
                "1", *notes, {"ours": [lost / restores.SIZE]}),
        ]  # fmt: skip
    return rows


def _agents(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """64 real agents, of which two hold a save: all start from it."""
    size, holders = 64, 2
    took, starts = [], []
    for _ in range(min(repeat, 2)):
        with _job(size) as job:
            script = job.folder / "script.py"
            script.write_text(_LISTS)
            command = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(script))
            for index in range(size):
                if index < holders:
                    restores.hold(_memory(job, index, "u"), 0, job=JOB)
                _start(job, index, command=command)
            for pod in job.pods.values():
                pod.says("starts from", 400)
            lines = {line for pod in job.pods.values() for line in re.findall("starts from .*", pod.text())}
            assert len(lines) == 1, f"unequal starts: {lines}"
            starts.append(float(sum("starts from" in pod.text() for pod in job.pods.values())))
            took.append(max(float(_IN_PLACE.findall(pod.text())[0][1]) for pod in job.pods.values()))
    what = f"{size} agents, {holders} of them hold a save of 0.1 MB"
    return [
        Row(f"{what}: start from it", spread(starts, "agents", 0), "", "", f"{size}", *notes, {"ours": starts}),
        Row(f"{what}: the last one has it after", spread(took), "", "", "", *notes, {"ours": took}),
    ]  # fmt: skip


_LISTS = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["FOLDER"])
print("starts from", sorted((path.name, path.stat().st_size) for path in folder.glob("*.pt")), flush=True)
time.sleep(600)
"""


def _rest(repeat: int, notes: tuple[str, str]) -> list[Row]:
    """The CPU of the watcher over a directory of files at rest."""
    counts = (2_000, 15_000)
    with ProcessPoolExecutor(len(counts), multiprocessing.get_context("spawn")) as pool:
        found = [[*pool.map(resting, counts)] for _ in range(min(repeat, 2))]
    return [
        Row(f"an agent that watches {files} files at rest, over {_REST_WINDOW:.0f} s: its CPU",
            spread([each * 100 for each in shares], "% of a core"), "", "", "< 1 % of a core", *notes,
            {"ours": [each * 100 for each in shares]})
        for files, shares in zip(counts, zip(*found, strict=True), strict=True)
    ]  # fmt: skip


def resting(files: int) -> float:
    """Watch files that do not change; the CPU as a share of one core."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        root = Path(name)
        for number in range(files):
            (root / str(number // 100)).mkdir(exist_ok=True)
            (root / str(number // 100) / f"{number}.bin").write_bytes(b"x")
        watcher = SaveWatcher(HeldSaves(root, JOB, _LIMIT))
        writer = Writer(JOB, RoundId(1, 1), 0, 1, 1)
        watcher.begin(RoundOfSaves(writer, Local(), RoundKeys(), 0, lambda: ()), [os.getpid()], [])
        time.sleep(20)  # it has read each file once
        used, began = time.process_time(), time.monotonic()
        time.sleep(_REST_WINDOW)
        share = (time.process_time() - used) / (time.monotonic() - began)
        watcher.close()
        time.sleep(1)
        return share


PARTS = {
    "script": _seen_by_the_script,
    "losses": _lost_pods,
    "restore": _restored,
    "moved": _moved,
    "steady": _steady,
    "budgets": _budgets,
    "staged": _staged,
    "members": _members,
    "agents": _agents,
    "rest": _rest,
}
"""What can be measured alone."""
