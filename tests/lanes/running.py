"""Runs the lanes of a plan: tracks side by side, the lanes of a track one after the other."""

import asyncio
import copy
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lanes import processes, summary
from tests.lanes.events import EVENTS, OPTION
from tests.lanes.plan import NOT_APPLICABLE, Command, Lane, Plan, Session
from tests.lanes.results import Failure, Results, Tail, verdict

_PROGRESS_SECONDS = 30.0
_READ_SECONDS = 1.0
_END_SECONDS = 300.0


@dataclass
class Progress:
    """How far one lane has come."""

    lane: Lane
    log: Path
    results: Results = field(default_factory=Results)
    state: str = "waits"
    seconds: float = 0.0
    """How long it took; 0 until it has ended."""


class Runner:
    """Runs a plan once; what the lanes print goes to `out`/LANE.log, what people should see to `show`."""

    def __init__(self, plan: Plan, out: Path, env: Mapping[str, str], show: Callable[[str], None]) -> None:
        self._plan, self._out, self._show = plan, out, show
        self._env = processes.environment(env)
        self._start = time.monotonic()
        self.lanes = {lane.name: Progress(lane, out / f"{lane.name}.log") for track in plan.tracks for lane in track}

    async def run(self) -> None:
        """Run all lanes; their results are in `lanes`."""
        for one in self.lanes.values():
            one.log.unlink(missing_ok=True)
        for old in self._out.glob(f"*{EVENTS}"):
            old.unlink()
        ticker = asyncio.create_task(self._tick())
        try:
            async with asyncio.TaskGroup() as group:
                for track in self._plan.tracks:
                    group.create_task(self._track(track))
        finally:
            ticker.cancel()

    async def _track(self, track: tuple[Lane, ...]) -> None:
        for lane in track:
            await self._lane(self.lanes[lane.name])

    async def _lane(self, progress: Progress) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(progress.lane.minutes * 60):
                await self._steps(progress)
        except TimeoutError:
            self._fail(
                progress, "the time limit of the lane", f"{progress.lane.minutes} minutes are over: {progress.state}"
            )
        try:
            async with asyncio.timeout(_END_SECONDS):
                for command in progress.lane.ends:
                    await self._command(progress, command)
        except TimeoutError:
            self._fail(progress, "the end of the lane", f"{_END_SECONDS:.0f} s are over: {progress.state}")
        progress.seconds = time.monotonic() - began
        progress.state = f"done in {summary.clock(progress.seconds)}"
        self._show(self._line(progress))

    async def _steps(self, progress: Progress) -> None:
        for command in progress.lane.commands:
            if not await self._command(progress, command):
                return
        for session in progress.lane.sessions:
            await self._session(progress, session)
        for command in progress.lane.judges:
            await self._judge(progress, command)

    async def _command(self, progress: Progress, command: Command) -> bool:
        """Run a command; whether the lane can go on."""
        progress.state = f"runs {command.name}"
        code = await processes.run(command.words, progress.log, self._env, progress.lane.nice)
        if code:
            problem = f"exit code {code}" if command.counts else f"exit code {code}; the tests of this lane did not run"
            self._fail(progress, command.name, problem)
        elif command.counts:
            progress.results.passes(command.name)
        return code == 0 or command.counts

    async def _judge(self, progress: Progress, command: Command) -> None:
        """Run what judges the whole run of a lane; show it if it cannot."""
        progress.state = f"runs {command.name}"
        unproven = progress.results.count("failed") + progress.results.count("skipped")
        if unproven:
            self._skip(progress, command.name, f"{unproven} of the lane's tests failed or were skipped")
            return
        code = await processes.run(command.words, progress.log, self._env, progress.lane.nice)
        if code == NOT_APPLICABLE:
            self._skip(progress, command.name, f"see {progress.log}")
        elif code:
            self._fail(progress, command.name, f"exit code {code}")
        else:
            progress.results.passes(command.name)

    def _skip(self, progress: Progress, name: str, reason: str) -> None:
        progress.results.skips(name)
        self._show(summary.not_applicable(progress.lane.name, name, reason))

    async def _session(self, progress: Progress, session: Session) -> None:
        """Run pytest, and report each failure when it happens."""
        progress.state = f"tests {session.name}".rstrip()
        before = copy.deepcopy(progress.results)
        progress.results.collected = None
        events = self._out / f"{'-'.join([progress.lane.name, *session.name.split()])}{EVENTS}"
        events.write_text("")
        command = (
            *(sys.executable, "-m", "pytest", *session.files, "-m", session.selection.expression),
            *("-p", "tests.lanes.events", f"{OPTION}={events}", "-p", "no:cacheprovider", *session.options),
        )
        tail = Tail(events)
        reader = asyncio.create_task(self._read(progress, tail))
        try:
            tagged = {**self._env, processes.TAG: f"{progress.lane.name}-{os.getpid()}"}
            code = await processes.run(command, progress.log, tagged, progress.lane.nice)
        finally:
            reader.cancel()
        self._take(progress, tail)
        if problem := verdict(code, before, progress.results):
            self._fail(progress, f"the pytest run {session.name}".rstrip(), problem)

    async def _read(self, progress: Progress, tail: Tail) -> None:
        while True:
            self._take(progress, tail)
            await asyncio.sleep(_READ_SECONDS)

    def _take(self, progress: Progress, tail: Tail) -> None:
        for failure in progress.results.add(tail.lines()):
            self._announce(progress, failure)

    def _fail(self, progress: Progress, name: str, problem: str) -> None:
        if failure := progress.results.fail(name, problem):
            self._announce(progress, failure)

    def _announce(self, progress: Progress, failure: Failure) -> None:
        self._show(summary.failed_now(progress.lane.name, failure, str(progress.log)))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            for progress in self.lanes.values():
                if progress.state != "waits" and not progress.seconds:
                    self._show(self._line(progress))

    def _line(self, progress: Progress) -> str:
        return summary.progress(time.monotonic() - self._start, progress.lane.name, progress.state, progress.results)
