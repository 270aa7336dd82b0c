"""Lanes with real commands and real pytest runs, small ones."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.lanes.plan import Command, Lane, Plan, Session, select
from tests.lanes.running import Progress, Runner
from tests.waiting import until, until_async

GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): assert 'this' == 'that'\n"
TWO_PROCESSES = ("-n", "2", "--dist", "loadfile")


def python(code: str, counts: bool = False) -> Command:
    return Command((sys.executable, "-c", code), counts)


class Shown:
    """Runs one lane, and keeps what it shows."""

    def __init__(self, out: Path) -> None:
        self.out, self.text = out, ""

    def _show(self, text: str) -> None:
        self.text += f"{text}\n"

    async def lane(self, **fields: object) -> Progress:
        lane = Lane("mine", **fields)  # type: ignore[arg-type]
        runner = Runner(Plan(((lane,),)), self.out, os.environ, self._show)
        await runner.run()
        return runner.lanes["mine"]

    async def tests(self, code: str, *options: str) -> Progress:
        folder = self.out / "tests"
        folder.mkdir()
        (folder / "test_it.py").write_text(code)
        return await self.lane(sessions=(Session("", select(), options, (str(folder),)),))


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    return Shown(tmp_path)


def counts(found: Progress) -> tuple[int, int, int]:
    return found.results.count("passed"), found.results.count("failed"), found.results.count("skipped")


def alive(pid: Path) -> bool:
    return Path(f"/proc/{pid.read_text()}").exists()


def problems(found: Progress) -> list[str]:
    return [failure.problem for failure in found.results.failures.values()]


@pytest.mark.parametrize("options", [(), TWO_PROCESSES], ids=["one process", "two processes"])
async def test_each_test_is_counted_and_each_failure_is_shown_with_its_log(
    shown: Shown, options: tuple[str, ...]
) -> None:
    found = await shown.tests(f"import pytest\n{GOOD}{BAD}def test_none(): pytest.skip('not here')\n", *options)
    assert counts(found) == (1, 1, 1)
    assert "FAILED mine: " in shown.text
    assert "test_it.py::test_bad\n       AssertionError: assert 'this' == 'that'\n" in shown.text
    assert f"log: {shown.out / 'mine.log'}" in shown.text
    assert "assert 'this' == 'that'" in found.log.read_text()


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        pytest.param(
            f"{GOOD}def test_gone():\n    import os; os._exit(0)\n", "it crashed (exit code 0)", id="it exits"
        ),
        pytest.param(
            f"{GOOD}def test_gone():\n    import os; os.abort()\n", "it crashed (exit code -6)", id="it aborts"
        ),
        pytest.param("", "it found no test (exit code 5)", id="it finds nothing"),
        pytest.param("import nonsense_that_is_not_there\n", "No module named", id="it cannot be imported"),
    ],
)
async def test_a_run_that_does_not_end_well_fails(shown: Shown, code: str, problem: str) -> None:
    found = await shown.tests(code)
    assert any(problem in text for text in problems(found)), problems(found)


async def test_a_test_may_change_the_folder(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.chdir(shown.out.parent)
    shown.out = Path(shown.out.name)
    found = await shown.tests("import os\ndef test_it(): os.chdir('/')\ndef test_more(): pass\n")
    assert counts(found) == (2, 0, 0)


async def test_the_source_is_compiled_once_for_all_processes_of_a_lane(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (shown.out / "ours.py").touch()
    code = f"import sys; sys.path.insert(0, {str(shown.out)!r}); import ours"
    await shown.lane(commands=(python(code),))
    assert [*shown.out.glob("__pycache__/ours.*")]


async def test_what_a_test_leaves_running_is_ended(shown: Shown) -> None:
    pid = shown.out / "pid"
    start = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], start_new_session=True)"
    found = await shown.tests(
        f"import subprocess, sys\ndef test_it():\n    open({str(pid)!r}, 'w').write(str({start}.pid))\n"
    )
    assert counts(found) == (1, 0, 0)
    until(lambda: not alive(pid))


async def test_a_worker_process_that_crashes_fails_its_test(shown: Shown) -> None:
    found = await shown.tests(f"{GOOD}def test_gone():\n    import os; os._exit(0)\n", *TWO_PROCESSES)
    assert found.results.count("failed") >= 1


async def test_a_lane_ends_with_a_preparation_that_fails(shown: Shown) -> None:
    found = await shown.lane(commands=(python("print('no disk'); exit(3)"), python("print('after')")))
    assert problems(found) == ["exit code 3; the tests of this lane did not run"]
    assert "no disk\n" in found.log.read_text()
    assert "after\n" not in found.log.read_text()


async def test_a_check_that_fails_is_counted_and_the_next_one_runs(shown: Shown) -> None:
    found = await shown.lane(commands=(python("exit(1)", counts=True), python("pass", counts=True)))
    assert counts(found) == (1, 1, 0)


@pytest.mark.parametrize(
    ("test", "judge", "expected", "shown_as"),
    [
        pytest.param(GOOD, "pass", (2, 0, 0), "", id="it is content"),
        pytest.param(GOOD, "exit(1)", (1, 1, 0), "FAILED mine: ", id="it is not"),
        pytest.param(GOOD, "exit(77)", (1, 0, 1), "DOES NOT APPLY mine: ", id="it cannot judge"),
        pytest.param(BAD, "exit(1)", (0, 1, 1), "DOES NOT APPLY mine: ", id="a test has failed"),
        pytest.param(
            f"{GOOD}def test_none():\n    import pytest; pytest.skip('not here')\n",
            "exit(1)",
            (1, 0, 2),
            "DOES NOT APPLY mine: ",
            id="a test was skipped",
        ),
    ],
)
async def test_the_judge_of_a_lane_comes_after_its_tests_and_only_if_all_have_passed(
    shown: Shown, test: str, judge: str, expected: tuple[int, int, int], shown_as: str
) -> None:
    (shown.out / "test_it.py").write_text(test)
    tests = Session("", select(), (), (str(shown.out / "test_it.py"),))
    found = await shown.lane(sessions=(tests,), judges=(python(judge),))
    assert counts(found) == expected
    assert f"{shown_as}{python(judge).name}" in shown.text if shown_as else python(judge).name not in shown.text


@pytest.mark.parametrize("code", ["", "exit(1)", "import time; time.sleep(99)"], ids=["well", "badly", "too late"])
async def test_what_ends_a_lane_runs_however_the_lane_went(shown: Shown, code: str) -> None:
    file = shown.out / "ended"
    await shown.lane(commands=(python(code),), ends=(python(f"open({str(file)!r}, 'w')"),), minutes=1 / 30)
    assert file.exists()


async def test_a_program_that_is_not_there_fails_the_lane(shown: Shown) -> None:
    found = await shown.lane(commands=(Command(("no-such-program",)),))
    assert problems(found) == ["exit code 127; the tests of this lane did not run"]
    assert "no-such-program cannot be started" in found.log.read_text()


async def test_a_lane_that_takes_too_long_is_ended_with_all_that_it_started(shown: Shown) -> None:
    pid = shown.out / "pid"
    code = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'],"
    code += f" start_new_session=True); open({str(pid)!r}, 'w').write(str(p.pid)); time.sleep(99)"
    found = await shown.lane(commands=(python(code),), minutes=1 / 30)
    assert problems(found) == [f"{1 / 30} minutes are over: runs {python(code).name}"]
    until(lambda: not alive(pid))


async def test_what_was_started_ends_when_the_run_is_interrupted(shown: Shown) -> None:
    pid = shown.out / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    task = asyncio.create_task(shown.lane(commands=(python(code),)))
    await until_async(lambda: pid.exists() and pid.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    until(lambda: not alive(pid))


async def test_lanes_of_a_track_follow_each_other_and_tracks_run_side_by_side(tmp_path: Path) -> None:
    """The second track waits for the first lane, and the second lane of the first track for the second track."""
    one, two = tmp_path / "one", tmp_path / "two"
    wait = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.05)\n"
    make = "import pathlib; pathlib.Path({!r}).touch()\n"
    first = Lane("first", (python(make.format(str(one)), counts=True),))
    after = Lane("after", (python(wait.format(str(two)), counts=True),))
    beside = Lane("beside", (python(wait.format(str(one)) + make.format(str(two)), counts=True),))
    runner = Runner(Plan(((first, after), (beside,))), tmp_path, os.environ, lambda text: None)
    await runner.run()
    assert {name: counts(one) for name, one in runner.lanes.items()} == dict.fromkeys(
        ("first", "after", "beside"), (1, 0, 0)
    )
