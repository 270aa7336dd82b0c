"""Runs schedules: `python -m tests.simulation --seeds 1000`, or one of them with a trace: `--seed 17 --trace`."""

import argparse
import os
import sys
import time
from collections import Counter
from multiprocessing import get_context

from . import saves, schedule
from .faults import LEASE, TOGETHER

_CHUNK = 25


def main() -> int:
    """Run what the command line asks for; 1 if a schedule fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--seed", type=int, help="this schedule alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens")
    parser.add_argument("--keep-going", action="store_true", help="run all schedules, whatever fails")
    parser.add_argument("--saves", action="store_true", help="rounds that start from checkpoints (saves.py)")
    options = parser.parse_args()
    if options.saves:
        return _saves(range(options.first, options.first + options.seeds), options.jobs)
    if options.seed is not None:
        failure = schedule.run(options.seed, print if options.trace else None)
        print(f"seed {options.seed}: {failure.problem if failure else 'ok'}")
        return 1 if failure else 0
    return _many(options)


def _saves(seeds: range, jobs: int) -> int:
    started, failed = time.monotonic(), 0
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    with get_context("fork").Pool(jobs) as pool:
        for found in pool.imap_unordered(saves.found, chunks):
            failed += len(found)
            for seed, problem in found:
                print(f"seed {seed}: {problem}", flush=True)
    print(f"{len(seeds)} schedules of saves in {time.monotonic() - started:.1f} s: {failed} failed")
    return 1 if failed else 0


def _many(options: argparse.Namespace) -> int:
    started, failed, done = time.monotonic(), [], 0
    events: Counter[str] = Counter()
    seeds = range(options.first, options.first + options.seeds)
    with get_context("fork").Pool(options.jobs) as pool:
        for failure, found in pool.imap_unordered(schedule.observe, seeds, _CHUNK):
            done += 1
            events.update(found)
            if failure is not None:
                failed.append(failure)
                print(f"seed {failure.seed}: {failure.problem}")
                print(f"  python -m tests.simulation --seed {failure.seed} --trace", flush=True)
                if not options.keep_going:
                    pool.terminate()
                    break
    seconds = time.monotonic() - started
    for what, number in sorted(events.items()):
        print(f"{number:8}  {what}")
    rate = f"{done / seconds:.0f} per second with {options.jobs} processes"
    covered = f"{events[LEASE]} deleted Leases, {events[TOGETHER]} groups cut off together"
    print(f"{done} schedules in {seconds:.1f} s, {rate}: {covered}, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
