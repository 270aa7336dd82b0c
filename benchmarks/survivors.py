"""`python -m benchmarks.survivors COMMAND`: workers that go on without a lost one.

Real agents, workers and a real coordinator on this machine, without a cluster. A kill is SIGKILL of a random worker but
rank 0's, at a random moment. What counts is the longest step of each survivor, with the end of that process in it:
"""

import json
import os
import platform
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import click

from e2e.conftest import KUBECONFIG, SYSTEM, fresh_namespace, install, program
from e2e.elastic import elastic, elastic_job, log, submit, with_env
from e2e.faults import BOTH_WAYS, FROM_IT, TO_IT, cut_node, leader, mend_node, signal_process
from e2e.kubectl import Kubectl
from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_operator.rounds.values import Policy
from tests.agent.rendezvous.conftest import Job, Pod, led
from tests.torch.survivors import BEFORE, BEHIND, INSIDE, Loss, Run, play, train
from tests.torch.test_survivors import SIZE, check
from tests.waiting import until

OUT = Path(__file__).with_suffix(".jsonl")
SCRIPT = Path(__file__).with_name("surviving_script.py")
README = Path(__file__).with_name("survivors.md")
MARKS = "<!-- begin: survivors.jsonl, written by python -m benchmarks.survivors table -->", "<!-- end -->"
_STEP = re.compile(r"step (\d+) of (\d+) took ([\d.]+) ms at ([\d.]+)")
_MILLION = {1: (256, 16, 64), 25: (1024, 24, 16), 100: (2048, 24, 16)}
"""Width, depth and batch of a model with so many million parameters."""
_MEMORY = "1536Mi"
_CUTS = {"cut off": BOTH_WAYS, "hears nothing": TO_IT, "is not heard": FROM_IT}
FAULTS = ("stopped", *_CUTS, "out of memory")
"""What happens to a worker, or to the node of its pod."""
_PAUSE = re.compile(r"rank \d+ goes on after (\d+) ms")
_UNWATCHED_SECONDS = 2.0
"""Seconds in which nothing looks at the job, because each look takes time of the cores that it trains on."""
_AWAKE_SECONDS = 5.0
"""How long a worker that was thought lost may try to do something."""


@click.group()
def cli() -> None:
    """Measure how long training stands still when a worker is killed."""


@contextmanager
def _job(size: int, survive: bool, env: Mapping[str, str]) -> Iterator[tuple[Job, list[Pod], Path]]:
    with tempfile.TemporaryDirectory() as name, led(Path(name)) as job:
        job.policy = Policy(1, size, survive=survive, early_errors=1_000_000)  # kills follow each other quickly
        job.expect(*range(size))
        given = {"PET_NNODES": f"1:{size}", "FOLDER": name, "STEPS": "1000000", "PYTORCHJOB_START_MODE": "warm", **env}
        if survive:
            given["PYTORCHJOB_SURVIVE"] = "auto"
        command = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(SCRIPT))
        pods = [job.start(index, command=command, **given) for index in range(size)]
        yield job, pods, Path(name)


class _Trial(Protocol):
    """A job that trains, with one worker in each pod."""

    size: int

    def text(self, index: int) -> str:
        """Return what a pod has printed."""

    def kill(self, index: int, pid: int) -> float | None:
        """Kill a worker; return how long the kernel took to end it, in ms. None: not known."""

    def is_ready(self) -> bool:
        """Return whether the workers would go on without one."""

    def touch(self, name: str) -> None:
        """Make a file for rank 0's script."""


class _Local:
    """Agents, workers and a coordinator on this machine."""

    def __init__(self, job: Job, pods: Sequence[Pod], folder: Path) -> None:
        self._job, self._pods, self._folder, self.size = job, pods, folder, len(pods)

    def text(self, index: int) -> str:
        return self._pods[index].output.read_text()

    def kill(self, index: int, pid: int) -> float | None:
        opened, began = os.pidfd_open(pid), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        select.select([opened], [], [])
        os.close(opened)
        return 1000 * (time.monotonic() - began)

    def is_ready(self) -> bool:
        return self._job.report().survive is ShrinkState.READY

    def touch(self, name: str) -> None:
        (self._folder / name).touch()


class _OnKind:
    """A job on the cluster of `make cluster`, with checkpoints in the pods' memory."""

    folder, name = "/checkpoints", "survives"

    def __init__(self, kubectl: Kubectl, size: int, env: Mapping[str, str], outputs: Path) -> None:
        self._kubectl, self.size, self._outputs = kubectl, size, outputs
        self._following: dict[int, subprocess.Popen[bytes]] = {}
        agent = {"survive": "Auto", "startMode": "Warm", "checkpoint": {"directory": self.folder, "memory": "256Mi"}}
        elastic = {"minReplicas": 1, "maxReplicas": size, "maxRestarts": 100_000}
        job = elastic_job(self.name, size, train=SCRIPT.read_text(), agent=agent, elasticPolicy=elastic)
        [role] = job["spec"]["pytorchReplicaSpecs"].values()
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": _MEMORY}}
        submit(kubectl, with_env(job, {**env, "FOLDER": self.folder, "STEPS": "1000000", "REPORTS": "yes"}))

    def text(self, index: int) -> str:
        """One kubectl follows each log: to start one for each look would slow down what is measured."""
        output = self._outputs / str(index)
        if index not in self._following:
            if not log(self._kubectl, self.name, index):
                return ""
            command = self._kubectl.command("logs", "--follow", f"{self.name}-worker-{index}")
            with output.open("wb") as file:
                self._following[index] = subprocess.Popen(command, stdout=file)
        return output.read_text()

    def close(self) -> None:
        """Stop to follow the logs."""
        for process in self._following.values():
            process.kill()
            process.wait()

    def kill(self, index: int, pid: int) -> float | None:
        signal_process(self._kubectl.get("pod", f"{self.name}-worker-{index}"), pid=pid)
        return None

    def is_ready(self) -> bool:
        return elastic(self._kubectl, self.name).get("survive") == ShrinkState.READY

    def touch(self, name: str, index: int = 0) -> None:
        self._kubectl("exec", f"{self.name}-worker-{index}", "--", "touch", f"{self.folder}/{name}")

    def apart_from_the_leader(self) -> list[int]:
        """Return the pods, but rank 0's, on other nodes than the operator's leader: its loss is a fault of its own."""
        operator = Kubectl(self._kubectl.program, KUBECONFIG, SYSTEM)
        leads = operator.get("pod", leader(operator))["spec"]["nodeName"]
        pods = {index: self._kubectl.get("pod", f"{self.name}-worker-{index}") for index in range(1, self.size)}
        return [index for index, pod in pods.items() if pod["spec"]["nodeName"] != leads]

    def strike(self, fault: str, index: int, pid: int) -> Callable[[], object]:
        """Do something to a worker, or to its node; return what undoes it."""
        pod = self._kubectl.get("pod", f"{self.name}-worker-{index}")
        node = pod["spec"]["nodeName"]
        if fault == "stopped":
            signal_process(pod, "STOP", pid=pid)
            return lambda: self._continue(index, pid)
        if fault == "out of memory":
            self.touch("eat", index)
            return lambda: None
        others = [self._kubectl.get("pod", f"{self.name}-worker-{each}") for each in range(self.size) if each != index]
        assert node not in {each["spec"]["nodeName"] for each in others}, f"{node} has two workers"
        cut_node(node, _CUTS[fault])
        return lambda: mend_node(node, _CUTS[fault])

    def _continue(self, index: int, pid: int) -> None:
        """Let a stopped process go on; it may have been killed meanwhile, or its pod replaced."""
        with suppress(AssertionError, ValueError, subprocess.CalledProcessError):
            signal_process(self._kubectl.get("pod", f"{self.name}-worker-{index}"), "CONT", pid=pid)


@contextmanager
def _trial(kind: bool, size: int, env: Mapping[str, str]) -> Iterator[_Trial]:
    if not kind:
        with _job(size, True, env) as (job, pods, folder):
            yield _Local(job, pods, folder)
        return
    with (
        fresh_namespace(install(Kubectl(program("kubectl"), KUBECONFIG, "default"))) as kubectl,
        tempfile.TemporaryDirectory() as outputs,
        closing(_OnKind(kubectl, size, env, Path(outputs))) as trial,
    ):
        yield trial


@cli.command()
@click.option("--size", default=3, show_default=True, help="Workers, one in each pod.")
@click.option("--kills", default=200, show_default=True, help="How many kills shall be on record for this size.")
@click.option("--million", default=1, show_default=True, type=click.Choice([*map(str, _MILLION)]))
@click.option("--kind", is_flag=True, help="On the cluster of `make cluster`.")
def kills(size: int, kills: int, million: str, kind: bool) -> None:
    """Kill a worker again and again; it comes back at a save each time."""
    _repeat("kill", _kill, size, kills, int(million), kind=kind)


def _repeat(
    what: str,
    measure: Callable[[_Trial, int], dict[str, Any]],
    size: int,
    times: int,
    million: int,
    env: Mapping[str, str] = MappingProxyType({}),
    *,
    kind: bool = False,
) -> None:
    """Measure with one random worker after the other, until so many rows are on record."""
    width, depth, batch = _MILLION[million]
    row = {"what": what, "where": "kind" if kind else "local", "size": size, "million": million}
    kept = [each for each in _load() if row.items() <= each.items()]
    with _trial(kind, size, {"WIDTH": str(width), "DEPTH": str(depth), "BATCH": str(batch), **env}) as trial:
        for number in range(len(kept), times):
            found = measure(trial, random.randrange(1, size))
            _keep({**row, **found})
            click.echo(f"{number + 1} of {times}: {found}")
        trial.touch("stop")


def _kill(trial: _Trial, lost: int) -> dict[str, Any]:
    """Kill a worker; return how long the others stood still, what they did again, and how long its return took."""
    others = [index for index in range(trial.size) if index != lost]
    until(lambda: trial.is_ready() and all(len(_last(trial, index)) > 20 for index in others), 120)
    before = [len(_lives(trial, index)) for index in others]
    time.sleep(random.uniform(0.1, 0.9))
    process_end = trial.kill(lost, _pid(trial, lost))
    time.sleep(_UNWATCHED_SECONDS)
    until(lambda: all(sum(step.size < trial.size for step in _last(trial, index)) > 20 for index in others), 60)
    steps = [_last(trial, index) for index in others]
    restarted = sum(len(_lives(trial, index)) > known for index, known in zip(others, before, strict=True))
    trial.touch("save")
    until(
        lambda: all(
            len(_lives(trial, index)) > known and _last(trial, index)
            for index, known in zip(others, before, strict=True)
        )
    )
    lives = [_lives(trial, index)[-2:] for index in others]
    numbers = [[step.number for step in each] for each in steps]
    return {
        "lost": lost,
        "longest": [max(step.took for step in each[3:]) for each in steps],
        "median": statistics.median(step.took for each in steps for step in each),
        "process_end": process_end,
        "repeated": sum(len(each) - len(set(each)) for each in numbers),
        "restarted": restarted,
        "back": [1000 * (new[0].at - new[0].took / 1000 - old[-1].at) for old, new in lives],
        "steps_again": [old[-1].number + 1 - new[0].number for old, new in lives],
    }


@cli.command()
@click.option("--size", default=3, show_default=True, help="Workers, one in each pod.")
@click.option("--kills", default=200, show_default=True, help="How many kills shall be on record for this size.")
@click.option("--kind", is_flag=True, help="On the cluster of `make cluster`.")
def polls(size: int, kills: int, kind: bool) -> None:
    """Kill a worker again and again; the script saves on request, so that it comes back at once."""
    _repeat("poll", _poll, size, kills, 1, {"POLLS": "yes"}, kind=kind)


def _poll(trial: _Trial, lost: int) -> dict[str, Any]:
    """Kill a worker; return how long it took until all ranks trained together again, and what was done again."""
    others = [index for index in range(trial.size) if index != lost]
    until(lambda: trial.is_ready() and all(_is_whole(trial, index) for index in range(trial.size)), 120)
    before = {index: len(_lives(trial, index)) for index in range(trial.size)}
    time.sleep(random.uniform(0.1, 0.9))
    killed, process_end = time.time(), trial.kill(lost, _pid(trial, lost))
    until(lambda: all(len(_lives(trial, at)) > before[at] and _last(trial, at) for at in before))
    lives = [_lives(trial, index)[-2:] for index in others]
    return {
        "lost": lost,
        "longest": [1000 * (new[0].at - killed) for _, new in lives],
        "median": statistics.median(step.took for old, _ in lives for step in old),
        "process_end": process_end,
        "repeated": sum(max(0, old[-1].number + 1 - new[0].number) for old, new in lives),
        "restarted": 0,  # all restart once, behind the save
    }


@cli.command()
@click.option("--times", default=10, show_default=True, help="How often each fault shall be on record.")
@click.option("--only", type=click.Choice(FAULTS), multiple=True, help="These faults alone.")
def faults(times: int, only: Sequence[str]) -> None:
    """Stop a worker, cut its node off, or let it take all memory, on the cluster of `make cluster`."""
    width, depth, batch = _MILLION[1]
    env = {"WIDTH": str(width), "DEPTH": str(depth), "BATCH": str(batch)}
    with _trial(True, 3, env) as trial:
        assert isinstance(trial, _OnKind)
        for fault in only or FAULTS:
            row = {"what": "fault", "fault": fault, "where": "kind", "size": 3, "million": 1}
            kept = [each for each in _load() if row.items() <= each.items()]
            for number in range(len(kept), times):
                found = _fault(trial, fault, random.choice(trial.apart_from_the_leader()))
                _keep({**row, **found})
                click.echo(f"{fault}, {number + 1} of {times}: {found}")
        trial.touch("stop")


def _fault(trial: _OnKind, fault: str, lost: int) -> dict[str, Any]:
    """Strike; return how long the others stood still in all, and how long the change alone took; undo it."""
    others = [index for index in range(trial.size) if index != lost]
    until(lambda: trial.is_ready() and all(_is_whole(trial, index) for index in others), 300)
    before = [len(_lives(trial, index)) for index in others]
    known = [len(_PAUSE.findall(trial.text(index))) for index in others]
    undo = trial.strike(fault, lost, _pid(trial, lost))

    def goes_on(index: int, count: int) -> bool:
        again = len(_lives(trial, index)) > count  # all have restarted instead
        return sum(step.size < trial.size or again for step in _last(trial, index)) > 20

    try:
        until(lambda: all(goes_on(index, count) for index, count in zip(others, before, strict=True)), 120)
    finally:
        undo()
    time.sleep(_AWAKE_SECONDS)
    steps = [_last(trial, index) for index in others]
    restarted = sum(len(_lives(trial, index)) > count for index, count in zip(others, before, strict=True))

    def is_back() -> bool:
        trial.touch("save")  # again: one before the lost worker waits is not the one with which it comes back
        return all(len(_lives(trial, at)) > count for at, count in zip(others, before, strict=True))

    until(is_back, 300, every=3.0)
    pauses = [_PAUSE.findall(trial.text(index))[count:] for index, count in zip(others, known, strict=True)]
    numbers = [[step.number for step in each] for each in steps]
    return {
        "lost": lost,
        "longest": [max(step.took for step in each[3:]) for each in steps],
        "pauses": [float(each[0]) for each in pauses if each],
        "median": statistics.median(step.took for each in steps for step in each),
        "repeated": sum(len(each) - len(set(each)) for each in numbers),
        "restarted": restarted,
    }


@cli.command()
@click.option("--size", default=3, show_default=True, help="Workers, one in each pod.")
@click.option("--kills", default=50, show_default=True, help="How many returns shall be on record for this size.")
@click.option("--million", default=1, show_default=True, type=click.Choice([*map(str, _MILLION)]))
def returns(size: int, kills: int, million: str) -> None:
    """Kill a worker again and again; it comes back between two steps each time, and no other one restarts."""
    _repeat("return", _return, size, kills, int(million), {"SHARES_STATE": "yes"})


def _return(trial: _Trial, lost: int) -> dict[str, Any]:
    """Kill a worker; return how long the others' first steps took with the one that has come back."""
    others = [index for index in range(trial.size) if index != lost]
    until(lambda: trial.is_ready() and all(_is_whole(trial, index) for index in others), 120)
    first = {index: len(_last(trial, index)) for index in others}
    time.sleep(random.uniform(0.1, 0.9))
    trial.kill(lost, _pid(trial, lost))
    lacks = lambda index: [step.size < trial.size for step in _last(trial, index)[first[index] :]]  # noqa: E731
    until(lambda: all(any(lacks(index)) and not any(lacks(index)[-20:]) for index in others))
    longest, usual = [], []
    for index in others:
        steps, there = _last(trial, index)[first[index] :], lacks(index)
        back = len(there) - there[::-1].index(True)
        longest.append(max(step.took for step in steps[back : back + 3]))
        usual += [step.took for step in steps[back + 3 :]]
    numbers = [[step.number for step in _last(trial, index)] for index in others]
    return {
        "lost": lost,
        "longest": longest,
        "median": statistics.median(usual),
        "process_end": None,
        "repeated": sum(len(each) - len(set(each)) for each in numbers),
        "restarted": len(_lives(trial, 0)) - 1,  # nobody has killed that one
    }


def _is_whole(trial: _Trial, index: int) -> bool:
    """Return whether all ranks took part in this one's last steps."""
    return [step.size for step in _last(trial, index)[-20:]] == [trial.size] * 20


class _Step(NamedTuple):
    number: int
    size: int
    took: float
    """Milliseconds."""
    at: float


def _pids(trial: _Trial, index: int) -> list[int]:
    return [int(pid) for pid in re.findall(r"begins at .*, pid (\d+)", trial.text(index))]


def _pid(trial: _Trial, index: int) -> int:
    """Return its worker's process; its log may have been opened just now."""
    until(lambda: bool(_pids(trial, index)))
    return _pids(trial, index)[-1]


def _lives(trial: _Trial, index: int) -> list[list[_Step]]:
    """Return the steps of each process that a pod's worker has been."""
    return [_read(part) for part in re.split(r"rank \d+ begins at", trial.text(index))[1:]]


def _last(trial: _Trial, index: int) -> list[_Step]:
    return (_lives(trial, index) or [[]])[-1]


def _read(text: str) -> list[_Step]:
    return [_Step(int(step), int(size), float(took), float(at)) for step, size, took, at in _STEP.findall(text)]


@cli.command()
@click.option("--million", default="1", show_default=True, type=click.Choice([*map(str, _MILLION)]))
@click.option("--seconds", default=20.0, show_default=True, help="How long each turn measures.")
@click.option("--turns", default=5, show_default=True)
def cost(million: str, seconds: float, turns: int) -> None:
    """Steps with the field and without it, in turns."""
    width, depth, batch = _MILLION[int(million)]
    env = {"WIDTH": str(width), "DEPTH": str(depth), "BATCH": str(batch)}
    for turn in range(turns):
        found = {}
        for survive in (True, False) if turn % 2 else (False, True):
            with _job(3, survive, env) as (_, pods, folder):
                until(lambda pods=pods: all(len(_read(pod.text())) > 5 for pod in pods), 120)
                for pod in pods:
                    pod.forget()
                time.sleep(seconds)
                (folder / "stop").touch()
                found["with" if survive else "without"] = statistics.median(
                    step.took for pod in pods for step in _read(pod.text())
                )
        _keep({"what": "cost", "size": 3, "million": int(million), **found})
        click.echo(f"{million} million: {found}, ratio {found['with'] / found['without']:.3f}")


_SAVING = partial(train, steps=32, save_every=5)


@cli.command()
@click.option("--operations", default=60, show_default=True, help="How many of the first operations lose a rank.")
def operations(operations: int) -> None:
    """Kill each of three ranks in each operation: before it, inside it and behind it; compare with a reference.

    The reference is the same training in one process, with the batches of those that took part in each step.
    """
    known = {(each["operation"], each["lost"], each["moment"]) for each in _load() if each["what"] == "operation"}
    for operation, lost, moment in product(range(1, operations + 1), range(SIZE), (BEFORE, INSIDE, BEHIND)):
        if (operation, lost, moment) not in known:
            result = _compare(play(SIZE, [Loss(lost, operation, moment)], _SAVING), lost)
            _keep({"what": "operation", "operation": operation, "lost": lost, "moment": moment, "result": result})
            click.echo(f"operation {operation}, rank {lost} killed {moment} it: {result}")


def _compare(run: Run, lost: int) -> str:
    errors = {each.error for each in run.survivors} - {""}
    if any(error.startswith("ShrinkError") for error in errors):
        return "refused"
    if errors:
        return f"failed: {sorted(errors)}"
    try:
        check(run, lost)
    except AssertionError as error:
        return f"wrong: {error}"
    return "equal"


def _machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def _keep(found: Mapping[str, Any]) -> None:
    line = {**found, "load": os.getloadavg()[0], "date": str(datetime.now(UTC).date()), "machine": _machine()}
    with OUT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []


_COLUMNS = ("what", "p50", "p95", "most", "end of the process", "usual step", "steps repeated", "rounds", "n", "run")


def _rows(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _row(*_COLUMNS)
    yield _row(*["---"] * len(_COLUMNS))
    said = {
        "kill": "longest step of a survivor",
        "poll": "from a kill to the first step with all ranks, behind a save on request",
        "return": "longest of the first steps with a rank that is back",
    }
    kinds = {(each["what"], _where(each), each["size"], each["million"]) for each in found if each["what"] in said}
    for kind in sorted(kinds):
        event, where, size, million = kind
        part = [each for each in found if (each["what"], _where(each), each.get("size"), each.get("million")) == kind]
        longest = sorted(took for each in part for took in each["longest"])
        p95 = longest[min(int(0.95 * len(longest)), len(longest) - 1)]
        times = [f"{took:.0f} ms" for took in (statistics.median(longest), p95, longest[-1])]
        ends = [each["process_end"] for each in part if each["process_end"] is not None]
        times += [f"{statistics.median(ends):.0f} ms" if ends else ""]
        times += [f"{statistics.median(each['median'] for each in part):.0f} ms"]
        counts = [sum(each[key] for each in part) for key in ("repeated", "restarted")]
        what = f"{where}, {size} workers, {million} million parameters: {said[event]}"
        yield _row(what, *times, *counts, f"{len(part)} {event}s", _run(part))
        if back := sorted(took for each in part for took in each.get("back", ())):
            what = f"{where}, {size} workers: how long the others stand still when the lost one comes back at a save"
            shown = [statistics.median(back), back[min(int(0.95 * len(back)), len(back) - 1)], back[-1]]
            again = sum(map(max, (each["steps_again"] for each in part if "back" in each)))
            yield _row(what, *(f"{took:.0f} ms" for took in shown), "", "", again, "", f"{len(back)}", _run(part))
    yield from _faults([each for each in found if each["what"] == "fault"])
    yield from _operations([each for each in found if each["what"] == "operation"])
    for million in sorted({each["million"] for each in found if each["what"] == "cost"}):
        part = [each for each in found if (each["what"], each.get("million")) == ("cost", million)]
        ratios = sorted(each["with"] / each["without"] for each in part)
        usual = statistics.median(each["without"] for each in part)
        what = f"3 workers, {million} million parameters: a step with the field by one without it"
        shown = (
            f"{statistics.median(ratios):.2f}",
            "",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
            "",
            f"{usual:.0f} ms",
            "",
            "",
        )
        yield _row(what, *shown, f"{len(part)} turns", _run(part))


def _where(found: Mapping[str, Any]) -> str:
    return str(found.get("where", "local"))  # the first rows have none


def _faults(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return two rows for each fault: how long the survivors stood still in all, and how long the change took."""
    for fault in [fault for fault in FAULTS if fault in {each["fault"] for each in found}]:
        part = [each for each in found if each["fault"] == fault]
        counts = [sum(each[key] for each in part) for key in ("repeated", "restarted")]
        for name, key in (("longest step of a survivor", "longest"), ("the change of the group alone", "pauses")):
            took = sorted(each for row in part for each in row[key])
            shown = [statistics.median(took), took[min(int(0.95 * len(took)), len(took) - 1)], took[-1]]
            usual = f"{statistics.median(each['median'] for each in part):.0f} ms"
            what = f"kind, 3 workers, one {fault}: {name}"
            yield _row(what, *(f"{each:.0f} ms" for each in shown), "", usual, *counts, f"{len(part)}", _run(part))


def _operations(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return a row for each rank: how often the survivors had the reference's parameters."""
    for lost in sorted({each["lost"] for each in found}):
        part = [each for each in found if each["lost"] == lost]
        counts = Counter(each["result"].partition(":")[0] for each in part)
        what = f"3 workers, rank {lost} killed before, inside and behind each of {len(part) // 3} operations"
        words = ", ".join(f"{count} {result}" for result, count in counts.most_common())
        yield _row(what, words, *[""] * 6, f"{len(part)} kills", _run(part))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _run(part: Sequence[Mapping[str, Any]]) -> str:
    loads = [each["load"] for each in part]
    return f"{part[-1]['machine']}, load {min(loads):.1f} to {max(loads):.1f}, {part[-1]['date']}"


@cli.command()
def table() -> None:
    """Put the table of what is kept into survivors.md."""
    text, (begin, end) = README.read_text(), MARKS
    before, after = text.partition(begin)[0], text.partition(end)[2]
    README.write_text("\n".join([before + begin, *_rows(_load()), end]) + after)


if __name__ == "__main__":
    cli(prog_name="python -m benchmarks.survivors")
