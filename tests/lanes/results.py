"""The results of one lane, read from the events of its pytest runs."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_WORST = ("passed", "skipped", "failed")
_MEANING = {2: "it was interrupted", 3: "pytest failed inside", 4: "pytest was called wrongly", 5: "it found no test"}


@dataclass(frozen=True)
class Failure:
    """A test, or a step of a lane, that failed."""

    name: str
    problem: str


@dataclass
class Results:
    """What is known of a lane so far: each test counts once, by the worst outcome of its phases."""

    outcomes: dict[str, str] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    collected: int | None = None
    """The number of tests that the present run found; None until it has ended."""

    def add(self, lines: Iterable[str]) -> list[Failure]:
        """Take in further events; return the failures among them."""
        events = [json.loads(line) for line in lines]
        return [failure for event in events if (failure := self._add(event))]

    def _add(self, event: dict[str, object]) -> Failure | None:
        if "collected" in event:
            self.collected = int(str(event["collected"]))
        if "test" not in event:
            return None
        name, outcome = str(event["test"]), str(event["outcome"])
        self.seconds[name] = self.seconds.get(name, 0.0) + float(str(event["seconds"]))
        self.outcomes[name] = max(outcome, self.outcomes.get(name, "passed"), key=_WORST.index)
        return self.fail(name, str(event["problem"])) if outcome == "failed" else None

    def fail(self, name: str, problem: str) -> Failure | None:
        """Record a failure of a test or of a step; None if it is known already."""
        self.outcomes[name] = "failed"
        if name in self.failures:
            return None
        self.failures[name] = Failure(name, problem)
        return self.failures[name]

    def passes(self, name: str) -> None:
        """Record a step that succeeded."""
        self.outcomes[name] = "passed"

    def skips(self, name: str) -> None:
        """Record a step that does not apply to this run."""
        self.outcomes[name] = "skipped"

    def count(self, outcome: str) -> int:
        """Return the number of tests with this outcome."""
        return sum(found == outcome for found in self.outcomes.values())


class Tail:
    """Reads what was added to a file of lines since the last time; a line in writing is left for the next time."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def lines(self) -> list[str]:
        """Return the new lines."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        self._at += len(whole) + 1 if whole else 0
        return whole.decode().splitlines()


def verdict(exit_code: int, before: Results, after: Results) -> str:
    """Return why a finished pytest run cannot be trusted, "" if its events and its exit code agree.

    `before` and `after` are the lane's results at the run's start and end.
    """
    ran = len(after.outcomes) - len(before.outcomes)
    if exit_code in _MEANING:
        return f"{_MEANING[exit_code]} (exit code {exit_code})"
    if after.collected is None or exit_code not in (0, 1):
        return f"it crashed (exit code {exit_code})"
    if ran < after.collected:
        return f"{after.collected - ran} of {after.collected} tests did not run"
    if exit_code == 1 and len(after.failures) == len(before.failures):
        return "pytest reports a failure that belongs to no test"
    return ""
