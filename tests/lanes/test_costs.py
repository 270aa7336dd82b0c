"""What a test costs is measured in its process and its children, and is found in a table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes.costs import Cost, Run, by_file, main, read, text
from tests.lanes.events import EVENTS, OPTION
from tests.lanes.processes import environment
from tests.lanes.results import Results

CODE = """
import subprocess, sys, time
import pytest

BURN = "import os\\nwhile sum(os.times()[:2]) < 0.3: pass"

@pytest.fixture
def heavy():
    end = time.process_time() + 0.3
    while time.process_time() < end: pass

def test_sleeps(): time.sleep(0.3)
def test_with_a_child(): subprocess.run([sys.executable, "-c", BURN], check=True)
def test_with_a_fixture(heavy): pass
"""


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_the_cpu_time_of_children_and_fixtures_counts_and_sleep_does_not(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "test_it.py").write_text(CODE)
    events = tmp_path / f"unit{EVENTS}"
    command = [sys.executable, "-m", "pytest", str(tmp_path / "test_it.py"), "-p", "no:cacheprovider", *options]
    subprocess.run(
        [*command, "-p", "tests.lanes.events", f"{OPTION}={events}"], env=environment(os.environ), check=True
    )
    run = read(events.read_text().splitlines())
    costs = {name.partition("::test_")[2]: cost for name, cost in run.tests.items()}
    assert min(costs["with_a_child"].cpu, costs["with_a_fixture"].cpu) >= 0.25
    assert costs["sleeps"].wall > costs["sleeps"].cpu
    assert run.rest > 0


def test_a_cost_is_no_result_of_a_test() -> None:
    results = Results()
    results.add(['{"spent": "x", "seconds": 1.5, "cpu": 0.5}', '{"collected": 1, "cpu": 3.0}'])
    assert (results.outcomes, results.collected) == ({}, 1)


def test_the_tests_of_a_file_are_added_up() -> None:
    costs = {"a.py::x": Cost(1, 0.5, 1), "b.py::x": Cost(3, 0.25, 1), "a.py::y[1]": Cost(2, 1, 1)}
    assert by_file(costs) == {"a.py": Cost(3, 1.5, 2), "b.py": Cost(3, 0.25, 1)}


def test_the_tables_begin_with_what_costs_most_cpu_time() -> None:
    run = Run({"a.py::x": Cost(9, 0.5, 1), "b.py::y": Cost(1, 2, 1), "b.py::z": Cost(1, 1, 1)}, 5)
    assert text({"unit": run}, 2).splitlines() == [
        "run   CPU  outside tests  tests",
        "unit  5.0  1.5            3",
        "",
        "CPU  wall  tests  file",
        "3.0  2.0   2      b.py",
        "0.5  9.0   1      a.py",
        "",
        "CPU  wall  tests  test",
        "2.0  1.0   1      b.py::y",
        "1.0  1.0   1      b.py::z",
    ]


def test_a_run_that_has_not_ended_has_no_cost_outside_tests() -> None:
    assert read([json.dumps({"spent": "x", "seconds": 1.0, "cpu": 1.0})]).rest == 0


def test_the_rows_are_as_many_as_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"unit{EVENTS}").write_text('{"spent": "a.py::x", "seconds": 1, "cpu": 2}\n{"collected": 1}\n')
    assert main(["1"], tmp_path) == 0
    assert capsys.readouterr().out.count("a.py") == 2


def test_without_a_run_it_names_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tmp_path) == 1
    assert "make test" in capsys.readouterr().err
