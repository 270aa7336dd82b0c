"""Kept runs of a harness in `benchmarks/`, and the page that it makes of them: a row for each thing that was run."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
Run = dict[str, Any]


@dataclass(frozen=True)
class KeptRuns:
    """The runs in NAME.jsonl, and the page NAME.md."""

    name: str
    key: str
    """The field of a run that says what was run."""
    head: str
    row: Callable[[str, list[Run]], str]
    """Makes the row of all runs of one thing."""

    @property
    def path(self) -> Path:
        """The page."""
        return _BENCHMARKS / f"{self.name}.md"

    def load(self) -> list[Run]:
        """Return the kept runs."""
        return [json.loads(line) for line in (_BENCHMARKS / f"{self.name}.jsonl").read_text().splitlines()]

    def page(self) -> str:
        """Return the page as the kept runs make it."""
        found = defaultdict[str, list[Run]](list)
        for run in self.load():
            found[run[self.key]].append(run)
        return self.head + "".join(self.row(name, runs) for name, runs in found.items())
