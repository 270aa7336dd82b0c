"""The pytest plugin of a lane: it writes one JSON object a line for each finished phase of a test, as it happens.

The last line of a complete run has the key `collected`. A file without it belongs to a run that crashed.
With --lane-census it writes which markers each test has.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

OPTION = "--lane-events"
CENSUS = "--lane-census"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, default=None, help="write each result to this file as it comes")
    parser.addoption(CENSUS, default=None, help="write the markers of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(OPTION)
    if path and not hasattr(config, "workerinput"):  # workers of pytest-xdist report to the main process
        config.pluginmanager.register(Events(Path(path).absolute()))  # tests change the folder


def pytest_collection_finish(session: pytest.Session) -> None:
    path = session.config.getoption(CENSUS)
    if path:
        found = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items}
        Path(path).write_text(json.dumps(found))


class Events:
    """Appends events to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid or "collection", outcome="failed", seconds=0.0, problem=_last_line(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when in ("setup", "teardown") and report.passed:
            return
        problem = _last_line(report) if report.failed else ""
        self._write(test=report.nodeid, outcome=report.outcome, seconds=report.duration, problem=problem)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        self._write(collected=session.testscollected)

    def _write(self, **event: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(event) + "\n")


def _last_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return what the failure says in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longreprtext).strip()
    lines = text.splitlines() or [""]
    return (lines[0] if crash else lines[-1])[:300]
