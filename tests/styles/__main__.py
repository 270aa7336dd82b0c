"""`python -m tests.styles [--style X] [--kills N] [--seed S] [--out FILE]`: a table, and a JSON line for each run."""

import argparse
import tempfile
from pathlib import Path

from tests.styles import kept
from tests.styles.run import run
from tests.styles.styles import STYLES


def main() -> int:
    """Run what the arguments name; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.styles", description=__doc__)
    parser.add_argument("--style", action="append", choices=STYLES, help="may be repeated; without it: all of them")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/styles.jsonl"))
    parser.add_argument("--keep", type=Path, help="a folder in which the files of each run stay")
    parser.add_argument("--write", action="store_true", help="make the page of the kept runs, and run nothing")
    arguments = parser.parse_args()
    if arguments.write:
        kept.RUNS.path.write_text(kept.RUNS.page())
        return 0
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    broken = 0
    print(f"{'style':24} {'verdict':8} {'faults':>6} {'behind':>6} {'steps':>6}", flush=True)
    for style in arguments.style or STYLES:
        with tempfile.TemporaryDirectory() as own:
            folder = Path(own) if arguments.keep is None else arguments.keep / style.replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            outcome = run(style, arguments.kills, arguments.seed, folder)
        behind = max((fault.behind for fault in outcome.faults), default=0)
        print(f"{style:24} {outcome.verdict:8} {len(outcome.faults):6} {behind:6} {outcome.steps:6}", flush=True)
        for words in outcome.wrong or [outcome.refused] * bool(outcome.refused):
            print(f"    {words[:300]}", flush=True)
        with arguments.out.open("a") as out:
            out.write(outcome.to_json() + "\n")
        broken += bool(outcome.wrong)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
