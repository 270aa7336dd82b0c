"""What bystanders noticed of each attack of tests/attacks: the raw data, and the table of docs/attacks.md.

python -m benchmarks.attacks

It makes the table again, of attacks.jsonl alone. `make test-attacks KEEP=1` renews both.
"""

import json
import math
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import ascii_uppercase

from benchmarks import table

ROOT = Path(__file__).parents[1]
RAW = Path(__file__).with_suffix(".jsonl")
PAGE = ROOT / "docs" / "attacks.md"
_BEGIN = "<!-- begin: benchmarks/attacks.jsonl, written by make test-attacks KEEP=1 -->"
HEAD = ("Attack", "Outcome", "Bystander", "Samples", "p50", "p99 undisturbed", "p99 attacked", "Longest")
FAILED, SUCCEEDED = "failed, as it must", "SUCCEEDED"


@dataclass(frozen=True)
class Run:
    """Where and when an attack was carried out."""

    at: str
    """UTC."""
    machine: str
    commit: str
    load: str
    """The load average at the start and at the end."""


@dataclass(frozen=True)
class Attack:
    """One attack and all round trips of its bystander, in milliseconds."""

    name: str
    """The test, by pytest's id."""
    outcome: str
    bystander: str
    """Which round trip it is; without one, the reason."""
    undisturbed: Sequence[float] = ()
    attacked: Sequence[float] = ()
    """Those that ended while the attack went on."""

    def cells(self) -> tuple[str, ...]:
        """The row of the table, in the order of `HEAD`."""
        if not self.attacked:
            return (self.name, self.outcome, f"- ({self.bystander})", *["-"] * 5)
        values = (
            percentile(self.attacked, 50),
            percentile(self.undisturbed, 99),
            percentile(self.attacked, 99),
            max(self.attacked),
        )
        counts = f"{len(self.undisturbed)} + {len(self.attacked)}"
        return (self.name, self.outcome, self.bystander, counts, *map(_milliseconds, values))


def percentile(values: Sequence[float], share: int) -> float:
    """The least of these values that `share` percent of them do not exceed."""
    return sorted(values)[math.ceil(len(values) * share / 100) - 1]


def _milliseconds(value: float) -> str:
    return f"{value:.{0 if value >= 100 else 1 if value >= 1 else 2}f} ms"


def this_run(load_before: str) -> Run:
    """The machine, the moment and the state of the source; a plus follows a commit that was changed."""
    changed = _git("status", "--porcelain", "--", ".", *(f":!{path.relative_to(ROOT)}" for path in (RAW, PAGE)))
    commit = _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    at = datetime.now(UTC).isoformat(timespec="minutes")
    return Run(at, table.machine(), commit, f"{load_before} to {table.load()}")


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def keep(attacks: Iterable[Attack], run: Run, path: Path = RAW) -> None:
    """Keep these attacks; those of the same names give way, all others stay."""
    known = {attack.name: (attack, of) for attack, of in load_all(path)}
    known |= {attack.name: (attack, run) for attack in attacks}
    lines = [
        json.dumps({**asdict(of), **_rounded(attack)}, ensure_ascii=False) for _, (attack, of) in sorted(known.items())
    ]
    path.write_text("".join(f"{line}\n" for line in lines))


def _rounded(attack: Attack) -> dict[str, object]:
    samples = {name: [float(f"{value:.4g}") for value in getattr(attack, name)] for name in ("undisturbed", "attacked")}
    return asdict(attack) | samples


def load_all(path: Path = RAW) -> list[tuple[Attack, Run]]:
    """All attacks that were kept."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    runs = [Run(*(kept.pop(name) for name in Run.__dataclass_fields__)) for kept in found]
    return [(Attack(**kept), run) for kept, run in zip(found, runs, strict=True)]


def render(found: Sequence[tuple[Attack, Run]]) -> str:
    """The runs, each with a letter, and a row for each attack."""
    runs = list(dict.fromkeys(run for _, run in found))
    letters = dict(zip(runs, ascii_uppercase, strict=False))
    lines = [f"- {letters[run]}: {run.at}, commit {run.commit}, load {run.load}, {run.machine}" for run in runs]
    lines += ["", _line((*HEAD, "Run")), _line(["---"] * (len(HEAD) + 1))]
    for attack, run in found:
        name, *cells = attack.cells()
        lines.append(_line((f"`{name}`", *cells, letters[run])))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(path: Path = PAGE, raw: Path = RAW) -> None:
    """Put the table of all attacks that were kept into its place in the page."""
    before, _, after = table.place(path, _BEGIN)
    path.write_text(f"{before}\n{render(load_all(raw))}\n{after}")


if __name__ == "__main__":
    write()
