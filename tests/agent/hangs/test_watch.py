"""The watch over real workers; time is told to it, so that no test waits for a limit."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.contract.hang_rules import HangRules, LogRule
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.hangs.watch import HangWatch, History
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.stacks.stack_dump import StackDumps
from tests.processes import Turns

ROOT = Path(__file__).parents[3]
REPORTS = "from pytorchjob_agent import progress\nfor step in range(20): progress(step)\n"
READY = "print('ready', flush=True); "
SLEEP = f"import time; {READY}time.sleep(600)"
BLOCKED = f"import queue\ndef load():\n    {READY}queue.Queue().get()\nload()"
STEP = 5.0


def clock() -> float:
    """The clock of the files, from which time is told; nothing is measured."""
    return time.monotonic()  # noqa: TID251


class Worker:
    """One worker of one round, and who watches it."""

    def __init__(self, folder: Path, code: str) -> None:
        self.files, self.stacks = ProgressFiles(folder, 1), StackDumps(folder, 1)
        path = folder / "train.py"
        path.write_text(code)
        env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), **self.files.env(0)}
        env |= self.stacks.env(0, env)
        self.process = subprocess.Popen([sys.executable, path], env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def watch(self, rules: HangRules = HangRules(), history: History = History()) -> HangWatch:  # noqa: B008
        watch = HangWatch(rules, self.files, WorkerMeter({0: self.process.pid}, self.stacks), history)
        for seconds in range(3):  # looks while all is well
            assert watch.check(clock() + seconds / 10) is None
        return watch

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[str], Worker]]:
    workers: list[Worker] = []

    def start(code: str) -> Worker:
        workers.append(Worker(tmp_path, code))
        return workers[-1]

    yield start
    for one in workers:
        one.end()


def test_the_check_comes_at_the_moment_of_the_limit(worker: Callable[[str], Worker]) -> None:
    watch = worker(REPORTS + SLEEP).watch(HangRules(progress_seconds=10))
    now, verdict = clock() + 0.5, None
    while verdict is None:
        now += min(watch.pause(now), 1)  # an agent looks at least this often
        verdict = watch.check(now)
    assert 10 < verdict.idle < 10.1, "a check each second would come half a second later"


def verdict_of(watch: HangWatch, until: float, step: float = STEP) -> tuple[HangVerdict | None, float]:
    """The first verdict within so many seconds of time as it is told, and when it came."""
    begin, turns = clock(), Turns(watch._meter.pids.values())
    for seconds in itertools.takewhile(lambda passed: passed <= until, itertools.count(0.0, step)):
        verdict = watch.check(begin + seconds)
        if verdict is not None:
            return verdict, seconds
        time.sleep(0.05)  # a stack that was asked for needs a moment
        turns.wait()
    return None, until


def paced(
    worker: Callable[[str], Worker],
    code: str,
    tmp_path: Path,
    rules: HangRules = HangRules(),  # noqa: B008
) -> tuple[Worker, HangWatch]:
    """A worker whose pace is known, and which then runs the code."""
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    begin = f"from pytorchjob_agent import progress\nprogress(0)\n{READY}\n"
    one = worker(begin + waits + "progress(20)\n" + code)
    watch = one.watch(rules)
    go.touch()
    now = clock()
    for tenths in range(900):
        assert watch.check(now + 2 + tenths / 100) is None
        if watch.progress[0].step == 20:
            break
        now = clock()
        time.sleep(0.1)
    assert watch.progress[0].step == 20
    return one, watch


def test_a_stopped_worker_is_found_by_the_short_limit(worker: Callable[[str], Worker], tmp_path: Path) -> None:
    one, watch = paced(worker, SLEEP, tmp_path)
    one.process.send_signal(signal.SIGSTOP)
    os.waitpid(one.process.pid, os.WUNTRACED)
    verdict, after = verdict_of(watch, 600, step=2.0)
    assert verdict is not None
    assert verdict.idle > 0
    assert "it is stopped (SIGSTOP)" in verdict.reason
    assert after <= 20
    assert watch.check(clock()) is verdict


def test_a_worker_that_is_blocked_outside_of_collectives_is_found(
    worker: Callable[[str], Worker], tmp_path: Path
) -> None:
    _, watch = paced(worker, BLOCKED, tmp_path, HangRules(first_progress_seconds=1e9))
    verdict, _ = verdict_of(watch, 600)
    assert verdict is not None
    assert "does nothing: it is in train.py:" in verdict.reason
    assert verdict.reason.endswith("load()")


def test_a_worker_that_sleeps_in_its_own_code_has_longer(worker: Callable[[str], Worker], tmp_path: Path) -> None:
    _, watch = paced(worker, SLEEP, tmp_path, HangRules(idle_seconds=0.0))
    verdict, after = verdict_of(watch, 2000, 40.0)
    assert verdict is not None
    assert "limit 1200 s" in verdict.reason
    assert after > 1100


def test_the_authors_limit_needs_no_pace(worker: Callable[[str], Worker]) -> None:
    one = worker(REPORTS + SLEEP)
    verdict, _ = verdict_of(one.watch(HangRules(progress_seconds=100.0)), 300)
    assert verdict is not None
    assert "no step after 19" in verdict.reason
    assert "(limit 100 s)" in verdict.reason


def test_looks_are_rare_while_nothing_can_become_true_in_between(worker: Callable[[str], Worker]) -> None:
    one = worker(f"from pytorchjob_agent import progress\nprogress(1)\n{SLEEP}")
    watch, now = one.watch(HangRules(progress_seconds=100.0)), clock()
    assert watch.check(now) is None
    assert [watch.pause(now + age) for age in (0, 31, 40, 51)] == [1.0, 4.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("rules", "pause"),
    [
        pytest.param(HangRules(), 4.0, id="the automatic limit"),
        pytest.param(HangRules(progress_seconds=3.0), 1.0, id="the same limit, set by the author"),
    ],
)
def test_the_short_automatic_limit_of_a_worker_that_reports_costs_no_more_looks(
    worker: Callable[[str], Worker], rules: HangRules, pause: float
) -> None:
    reports = "import time\nfrom pytorchjob_agent import progress\nprogress(0)\n"
    one = worker(reports + f"for step in range(20):\n    progress(step)\n{READY}\n" + "while True: progress(20)")
    watch = one.watch(rules)
    watch._started, watch._next = watch._started - 60, 0.0  # a round that is not young
    now = clock()
    assert watch.check(now) is None
    assert watch.pause(now) == pause


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(HangRules(progress_seconds=4.0), id="a limit that is near"),
        pytest.param(HangRules(idle_seconds=60.0), id="idleness"),
        pytest.param(HangRules(log_rules=(LogRule("steps", "step", every_seconds=60.0),)), id="lines"),
    ],
)
def test_looks_are_frequent_where_something_is_watched_closely(
    worker: Callable[[str], Worker], rules: HangRules
) -> None:
    one = worker(f"from pytorchjob_agent import progress\nprogress(1)\n{SLEEP}")
    watch, now = one.watch(rules), clock()
    watch.check(now)
    assert watch.pause(now + 31) == 1.0


def test_a_worker_that_never_reports_is_left_alone_where_the_rule_for_idleness_is_off(
    worker: Callable[[str], Worker],
) -> None:
    assert verdict_of(worker(SLEEP).watch(HangRules(idle_seconds=0.0)), 4000, 40.0)[0] is None


def test_a_worker_that_has_ended_does_not_hang(worker: Callable[[str], Worker]) -> None:
    one = worker(REPORTS + "print('ready')")
    one.process.wait()
    assert verdict_of(one.watch(HangRules(progress_seconds=10.0)), 400, 40.0)[0] is None


def test_idleness_where_it_is_asked_for(worker: Callable[[str], Worker]) -> None:
    verdict, after = verdict_of(worker(SLEEP).watch(HangRules(idle_seconds=300.0)), 600)
    assert verdict is not None
    assert "limit 300 s" in verdict.reason
    assert after > 290


def test_lines_are_judged(worker: Callable[[str], Worker]) -> None:
    watch = worker(SLEEP).watch(HangRules(log_rules=(LogRule("xid", "Xid", fault_on_match=True),)))
    assert watch.reads_lines
    watch.add_line(0, b"fine")
    assert watch.check(clock() + 10) is None
    watch.add_line(0, b"\xff Xid 79 " + b"x" * 100_000)
    verdict = watch.check(clock() + 20)
    assert verdict is not None
    assert verdict.idle == 0


def test_a_match_beyond_what_is_searched_is_none(worker: Callable[[str], Worker]) -> None:
    watch = worker(SLEEP).watch(HangRules(log_rules=(LogRule("xid", "Xid", fault_on_match=True),)))
    watch.add_line(0, b"x" * 5000 + b"Xid")
    assert watch.check(clock() + 10) is None


def test_without_rules_no_line_is_wanted(worker: Callable[[str], Worker]) -> None:
    assert not worker(SLEEP).watch().reads_lines


def test_a_first_step_that_never_comes_where_reports_are_known(worker: Callable[[str], Worker]) -> None:
    watch = worker(SLEEP).watch(HangRules(idle_seconds=0.0), History(reports=True))
    verdict, _ = verdict_of(watch, 2000, 40.0)
    assert verdict is not None
    assert verdict.reason == "no first step within 1200 s"


EARLY = """
import time
from pytorchjob_agent import progress
for step in range({steps}):
    progress(step)
    time.sleep(0.01)
"""


def frozen(worker: Callable[[str], Worker], steps: int) -> Worker:
    """A worker that is stopped after so few steps that no check has seen two of them."""
    early = worker(EARLY.format(steps=steps) + SLEEP)
    early.process.send_signal(signal.SIGSTOP)
    os.waitpid(early.process.pid, os.WUNTRACED)
    return early


def test_a_worker_that_freezes_before_the_first_check_is_found_by_the_pace_of_its_steps(
    worker: Callable[[str], Worker],
) -> None:
    verdict, after = verdict_of(frozen(worker, steps=25).watch(), 147, step=2.0)
    assert verdict is not None, "it reported 25 steps: ten are promised to be enough"
    assert "it is stopped (SIGSTOP)" in verdict.reason
    assert after <= 20


def test_a_worker_that_freezes_in_its_first_steps_is_found_by_the_pace_of_the_round_before(
    worker: Callable[[str], Worker],
) -> None:
    watch = frozen(worker, steps=3).watch(history=History(True, 0.5))
    verdict, after = verdict_of(watch, 147, step=2.0)
    assert verdict is not None
    assert after <= 20
    assert watch.history == History(True, 0.5), "three steps are no better measurement for the next round"
