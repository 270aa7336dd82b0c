"""The pytest plugin of a lane: it writes one JSON object a line for each finished phase of a test, as it happens.

What a test costs with its fixtures is in a line of its own, with the key `spent`: CPU seconds of pytest's process and
of the children that ended meanwhile.
The last line of a complete run has the key `collected`. A file without it belongs to a run that crashed.
With --lane-census it writes which markers each test has.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

OPTION = "--lane-events"
CENSUS = "--lane-census"
EVENTS = ".events"
"""How the name of a file of events ends: one for each pytest run of a lane."""
_MOST_LINES = 30
_CPU = "cpu"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, default=None, help="write each result to this file as it comes")
    parser.addoption(CENSUS, default=None, help="write the markers of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(OPTION)
    if not path:
        return
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist report to the main process
        config.pluginmanager.register(Events(Path(path).absolute()))  # tests change the folder


def pytest_collection_finish(session: pytest.Session) -> None:
    path = session.config.getoption(CENSUS)
    if path:
        found = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items}
        Path(path).write_text(json.dumps(found))


class Meter:
    """Adds to the report of each phase the CPU seconds since the phase before it."""

    def __init__(self) -> None:
        self._before = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._before = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = cpu_seconds()
        report.user_properties.append((_CPU, now - self._before))
        self._before = now
        return report


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended, with theirs."""
    return sum(os.times()[:4])


class Events:
    """Appends events to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu: defaultdict[str, float] = defaultdict(float)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid or "collection", outcome="failed", seconds=0.0, problem=_problem(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcome(report)
        self._seconds[report.nodeid] += report.duration
        self._cpu[report.nodeid] += sum(float(str(value)) for name, value in report.user_properties if name == _CPU)
        if report.when == "teardown":
            seconds, cpu = self._seconds.pop(report.nodeid), self._cpu.pop(report.nodeid)
            self._write(spent=report.nodeid, seconds=round(seconds, 4), cpu=round(cpu, 2))

    def _outcome(self, report: pytest.TestReport) -> None:
        if report.when in ("setup", "teardown") and report.passed:
            return
        problem = _problem(report) if report.failed else ""
        self._write(test=report.nodeid, outcome=report.outcome, seconds=report.duration, problem=problem)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        self._write(collected=session.testscollected, cpu=round(cpu_seconds(), 2))

    def _write(self, **event: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(event) + "\n")


def _problem(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return what the failure says; of a long text, which may have the output of a process, the first and last lines.

    The closing lines of a run have it, as its logs may be out of reach later.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = [line[:300] for line in str(crash.message if crash else report.longreprtext).strip().splitlines()] or [""]
    if not crash:
        return lines[-1]
    return "\n".join(lines if len(lines) <= _MOST_LINES else [*lines[:5], "...", *lines[5 - _MOST_LINES :]])
