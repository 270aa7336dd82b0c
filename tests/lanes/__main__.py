"""`python -m tests.lanes [--long]`: the tests that this machine can run, side by side; `make test` calls it.

WITHOUT="cluster helm" leaves kinds of tests out by their markers. STRICT=1 fails if this machine lacks something.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.lanes import processes, summary
from tests.lanes.events import CENSUS
from tests.lanes.machine import Lack, detect, lacks
from tests.lanes.plan import Plan, Tests, plan
from tests.lanes.results import Results
from tests.lanes.running import Runner

OUT = Path("out/test")
_INTERRUPTED, _USAGE = 130, 2
_CENSUS_SECONDS = 300


def main(arguments: list[str], env: Mapping[str, str]) -> int:
    """Run what can run; return the exit code."""
    # A shell that starts this in the background has it ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    long = arguments == ["--long"]
    if arguments and not long:
        show(str(__doc__))
        return 0 if arguments[0] in ("-h", "--help") else _USAGE
    strict = env.get("STRICT") == "1"
    OUT.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    tests = census(env)
    if tests is None:
        show(f"FAILED collection: some tests cannot be imported\n       log: {OUT / 'census.log'}")
        show(summary.closing([_failed("collection", "see the log")]))
        return 1
    unwanted = {kind: Lack("WITHOUT names it", "remove it from WITHOUT") for kind in env.get("WITHOUT", "").split()}
    machine = detect(env)
    missing = lacks(machine)
    chosen = plan(tests, {**missing, **unwanted}, long, machine.existing_cluster or machine.has_cluster)
    runner = Runner(chosen, OUT, env, show)
    try:
        asyncio.run(until_done(runner))
    except (KeyboardInterrupt, asyncio.CancelledError):
        show("\ninterrupted: everything that was started has been ended")
        return _INTERRUPTED
    own = Results()
    for problem in chosen.problems:
        own.fail(problem, "every test belongs to exactly one lane: see tests/lanes/plan.py")
    for row in chosen.left_out if strict else ():
        if row.kind not in unwanted and row.tests and not row.follows:
            own.fail(f"{row.tests} tests of the kind {row.kind}", f"STRICT=1, and {row.lack.why}")
    report(runner, own, chosen, "make test-long" if long else "make test")
    show(f"\n{summary.clock(time.monotonic() - began)} minutes in all; each lane's log is {OUT}/LANE.log\n")
    everything = [own, *(lane.results for lane in runner.lanes.values())]
    show(summary.closing(everything, sum(row.tests for row in chosen.left_out)))
    return 1 if any(results.failures for results in everything) else 0


def show(text: str) -> None:
    """Print for people."""
    print(text, flush=True)


def census(env: Mapping[str, str]) -> Tests | None:
    """Return all tests with their markers; None if pytest cannot collect them."""
    path, log = OUT / "census.json", OUT / "census.log"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "tests", "e2e", "--collect-only", "-q", "-p", "no:cacheprovider"]
    with log.open("w") as out:
        subprocess.run(
            [*command, "-p", "tests.lanes.events", f"{CENSUS}={path}"],
            stdout=out, stderr=out, env=processes.environment(env), timeout=_CENSUS_SECONDS, check=False,
        )  # fmt: skip
    if not path.exists():
        return None
    return {name: frozenset(markers) for name, markers in json.loads(path.read_text()).items()}


async def until_done(runner: Runner) -> None:
    """Run all lanes; SIGTERM ends them as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await runner.run()


def report(runner: Runner, own: Results, chosen: Plan, command: str) -> None:
    """Print what was left out, the lanes' times, and every failure with the log to open."""
    rows: list[tuple[str, ...]] = [("lane", "time", "passed", "failed", "skipped")]
    for name, one in runner.lanes.items():
        counts = [str(one.results.count(outcome)) for outcome in ("passed", "failed", "skipped")]
        rows.append((name, summary.clock(one.seconds), *counts))
    lines = [
        "",
        *(summary.table(rows) if runner.lanes else []),
        *summary.left_out([row for row in chosen.left_out if row.tests], command),
    ]
    found = {"this run": own, **{name: one.results for name, one in runner.lanes.items()}}
    logs = {"this run": "-", **{name: str(one.log) for name, one in runner.lanes.items()}}
    show("\n".join([*lines, *summary.failures(found, logs)]))


def _failed(name: str, problem: str) -> Results:
    results = Results()
    results.fail(name, problem)
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
