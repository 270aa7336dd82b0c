"""`python -m tests.failures [--case WORDS] [--runs N] [--out FILE]`: a table, and a JSON line for each run."""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.failures import kept
from tests.failures.files import FILES, File
from tests.failures.run import Outcome, run, run_file
from tests.failures.table import CASES, Case

TABLES: dict[str, tuple[Case | File, ...]] = {"failures": CASES, "files": FILES}


def main() -> int:
    """Run what the arguments name; 1 if people would have read something wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.failures", description=__doc__)
    parser.add_argument("--case", default="", help="words of the names of the cases; without it: all of them")
    parser.add_argument("--table", choices=TABLES, help="without it: both")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="how many run side by side")
    parser.add_argument("--out", type=Path, default=Path("out/failures.jsonl"))
    parser.add_argument("--write", action="store_true", help="make the page of the kept runs, and run nothing")
    arguments = parser.parse_args()
    if arguments.write:
        kept.RUNS.path.write_text(kept.RUNS.page())
        return 0
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    wrong = 0
    both = (*CASES, *FILES) if arguments.table is None else TABLES[arguments.table]
    chosen = [each for each in both if arguments.case in each.name]
    with ThreadPoolExecutor(arguments.at_once) as threads:
        for outcome in threads.map(_run, [each for _ in range(arguments.runs) for each in chosen]):
            wrong += bool(outcome.wrong)
            wasted = "" if outcome.wasted is None else f"{outcome.wasted:.1f} s"
            print(f"{outcome.name:60} {'wrong' if outcome.wrong else 'right'} {wasted}", flush=True)
            for words in outcome.wrong:
                print(f"    {words}", flush=True)
            with arguments.out.open("a") as out:
                out.write(outcome.to_json() + "\n")
    return 1 if wrong else 0


def _run(case: Case | File) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return run(case, Path(folder)) if isinstance(case, Case) else run_file(case, Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
