"""`python -m tests.mutation [--fresh] [--report] [MODULE ...]`: the score by module, and the survivors.

`make mutate` calls it. Results are kept: a second run tries survivors and changed functions again. `--fresh` starts
from scratch. `--report` only prints what is known. Each run records the modules that it finished in results.json, and
writes the table of README.md.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.table import machine, place
from tests.mutation import plan, results, work

HERE = Path(__file__).parent
RESULTS, EXPLAINED, README = HERE / "results.json", HERE / "explained.toml", HERE / "README.md"
BEGIN = "<!-- begin: results.json, written by make mutate -->"


def main(arguments: list[str]) -> int:
    """Mutate the modules that are named, or all; return 1 if a survivor has no reason."""
    options = {word for word in arguments if word.startswith("--")}
    try:
        groups = plan.chosen([word for word in arguments if word not in options], work.modules())
    except ValueError as error:
        print(error)
        return 2
    reasons, survivors = results.explained(EXPLAINED), 0
    for module, function, before, _ in results.stale(reasons, work.ROOT / "operator"):
        print(f"{EXPLAINED.name}: {module} {function} has changed, review the entry of: {before}")
    for group, modules in groups.items():
        if "--report" not in options:
            path = work.prepare(group, modules, fresh="--fresh" in options)
            work.forget_survivors(work.mutated(group, module) for module in modules)
            if code := work.run(path):  # modules that it has finished have a score
                print(f"{group.name}: mutmut ended with {code}, see {path / 'mutmut.log'}")
                survivors += 1
        for module in modules:
            survivors += report(group, module, reasons, keep="--report" not in options)
    README.write_text(page(README, json.loads(RESULTS.read_text())))
    return 1 if survivors else 0


def report(group: plan.Group, module: str, reasons: Mapping[results.Key, str], *, keep: bool) -> int:
    """Print a module's score and its survivors without a reason; return how many there are."""
    path = work.mutated(group, module)
    if not Path(f"{path}.meta").exists():
        return 0
    mutants = results.read(path, module)
    score = results.score(mutants, reasons)
    print(f"{module}: {score.percent:.1f} % of {score.mutants} ({asdict(score)})")
    for (_, function), found in results.unexplained(mutants, reasons).items():
        print(f"  {function}")
        for mutant in found:
            print(f"    - {mutant.before}\n    + {mutant.after}")
    if keep and not score.unchecked:
        record(module, score)
    return score.survived


def record(module: str, score: results.Score) -> None:
    """Keep a module's score with the date, the machine and the commit."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    date = datetime.now(UTC).date().isoformat()
    known[module] = {**asdict(score), "date": date, "machine": machine(), "commit": commit}
    RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def page(path: Path, known: Mapping[str, Mapping[str, object]]) -> str:
    """Return the README with the table of all results that are known, and the modules without any."""
    before, _, after = place(path, BEGIN)
    head = ("Module", "Killed", "Mutants", "Timeouts", "Explained", "Survivors", "Date", "Commit", "Machine")
    rows: list[tuple[object, ...]] = [head, ("---",) * len(head)]
    for module, found in known.items():
        score = results.Score(**{name: found[name] for name in results.Score.__dataclass_fields__})  # type: ignore[arg-type]
        figures = (score.mutants, score.timeouts, score.explained, score.survived)
        where = (found["date"], found["commit"], found["machine"])
        rows.append((f"`{module}`", f"{score.percent:.1f} %", *figures, *where))
    table = "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)
    every = {module for modules in plan.chosen([], work.modules()).values() for module in modules}
    missing = ", ".join(f"`{module}`" for module in sorted(every - set(known))) or "none"
    return f"{before}\n{table}\n\nNot measured yet: {missing}.\n{after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
