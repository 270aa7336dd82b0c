r"""Reads progress from what a worker prints: tqdm bars, and lines with a step and a loss. Pure.

It understands only what cannot mean something else, and shows nothing otherwise. A bar is of the training if its text
names a training epoch, a step or an iteration, or if it ends with a loss. A bar or a line about an evaluation, a
download or a data set is not. The share of the whole job is known if a line counts all steps (`step 120/1000`), or if
it names a part of the job and how many there are (`Epoch 2/10`). A count that starts again counts no whole job.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from pytorchjob_agent.script.observation import Observation

LONGEST_LINE = 1024
"""Characters that are searched."""
MAY_SHOW = re.compile(rb"[Ll]oss|LOSS|[Ee]poch|[Ss]tep|[Ii]ter|%\|")
"""What a line has to contain; the caller drops all others, which are nearly all lines."""

_WORD = r"(?<![a-zA-Z])(?:{})(?![a-zA-Z])"
_EVALUATES = re.compile(
    _WORD.format(r"eval[a-z]*|valid[a-z]*|val|tests?|testing|predict[a-z]*|infer[a-z]*|sanity|dev"), re.IGNORECASE
)
_PREPARES = re.compile(
    r"load|fetch|\bmap|filter|token|process|prepar|cach|sav|writ|convert|shard|split|generat|compil|warm|sampl|example",
    re.IGNORECASE,
)
_TRAINS = re.compile(_WORD.format(r"train[a-z]*|epochs?|steps?|iter[a-z]*"), re.IGNORECASE)
_COUNTS_STEPS = re.compile(_WORD.format(r"steps?|iterations?|iters?"), re.IGNORECASE)
_COUNTS_PARTS = re.compile(r"\W*(?:train(?:ing)? )?epochs?\W*", re.IGNORECASE)
_BAR = re.compile(r"\b(\d{1,3})%\|[^|]*\| {0,3}(\d{1,12})/(\d{1,12}) ?\[([^\]]*)")
_LEFT = re.compile(r"<(?:(\d{1,5}):)?(\d{1,2}):(\d\d)")
_PART = re.compile(r"(?<![a-zA-Z])epochs?['\"]?[\s:=#\[(]{0,4}(\d{1,6})(\.\d{1,9})?(?: ?/ ?(\d{1,6}))?", re.IGNORECASE)
_STEP = re.compile(
    r"(?<![a-zA-Z_])(?:global[ _])?(?:steps?|iter(?:ation)?s?)['\"]?[\s:=#\[(]{0,16}"
    r"(\d{1,12})(?![.,]?\d)(?:\s{0,10}(?:/|of)\s{0,10}(\d{1,12}))?",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"(?:([a-zA-Z]{1,20})[ _/-])?(?<![a-zA-Z])loss['\"]?[ \t]{0,8}[:=]?[ \t]{0,8}[\[(]?"
    r"(-?\d{1,20}(?:\.\d{1,30})?(?:e[-+]?\d{1,3})?)(?![.,]?\d)",
    re.IGNORECASE,
)


class _Count(NamedTuple):
    done: int
    total: int | None


class LineReader:
    """What the lines of one worker have shown so far."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self.found = Observation()
        self._part: _Count | None = None  # by the newest line that names one
        self._from_zero = False
        self._whole: _Count | None = None  # the newest count of all steps
        self._starts_again = False

    def take(self, line: str) -> None:
        """Read one line, or one state of a bar."""
        line = line[:LONGEST_LINE]
        bar = _BAR.search(line)
        if bar is not None:
            self._take_bar(line[: bar.start()], bar)
        elif not _EVALUATES.search(line) or _TRAINS.search(_without_counts(line)):
            self._take_line(line)

    def ended(self) -> None:
        """Note that the worker has ended with success: the last of its epochs is over, whatever line began it."""
        part = self._part
        if part is not None and part.total and self._before(part) == part.total - 1 and self.found.step is None:
            self.found = replace(self.found, percent=100, remaining=None)

    def _take_bar(self, name: str, bar: re.Match[str]) -> None:
        rest = bar[4]
        if _EVALUATES.search(name) or _PREPARES.search(name):
            return
        metrics = dict(_loss(rest))
        if not _TRAINS.search(name) and not metrics:
            return
        count = _Count(int(bar[2]), int(bar[3]))
        part = self._read_part(name)
        if part is not None:
            self._show_part(part, count, metrics)
        elif _COUNTS_PARTS.fullmatch(name):
            self._show(Observation(percent=_percent(*count), remaining=_left(rest), metrics=metrics))
        elif _COUNTS_STEPS.search(name):
            self._show_whole(count, _left(rest), metrics)
        else:
            self._show(Observation(metrics=metrics))

    def _take_line(self, line: str) -> None:
        part, metrics = self._read_part(line), dict(_loss(line))
        self._part = part or self._part
        step = _STEP.search(line)
        trains = bool(metrics) or _TRAINS.search(_without_counts(line)) is not None
        if step is None or not trains or (not metrics and _PREPARES.search(line)):
            if metrics:
                self._show(Observation(percent=self._at_least(part), metrics={**_shown(part), **metrics}))
            return
        count = _Count(int(step[1]), int(step[2]) if step[2] else None)
        if self._part is not None:
            self._show_part(self._part, count, metrics)
        elif count.total is not None or metrics:
            self._show_whole(count, None, metrics)

    def _read_part(self, text: str) -> _Count | None:
        """Return the training epoch that a text names; a fraction, as Hugging Face prints it, names no part."""
        found = _PART.search(text)
        if found is None or found[2]:
            return None
        self._from_zero = self._from_zero or int(found[1]) == 0
        return _Count(int(found[1]), int(found[3]) if found[3] else None)

    def _show_part(self, part: _Count, count: _Count, metrics: dict[str, float]) -> None:
        """Show a count within one of the parts; of a job whose number of parts is unknown only which part it is."""
        metrics = {**_shown(part), **metrics}
        before = self._before(part)
        if before is None or not part.total or not count.total or count.done > count.total:
            self._show(Observation(metrics=metrics))
            return
        step, total = before * count.total + count.done, part.total * count.total
        self._show(Observation(step, total, _percent(step, total), metrics=metrics))

    def _before(self, part: _Count | None) -> int | None:
        """Return how many parts are over while this one lasts; None if it is not known how many there are."""
        if part is None or not part.total:
            return None
        before = part.done if self._from_zero else part.done - 1
        return before if 0 <= before < part.total else None

    def _at_least(self, part: _Count | None) -> int | None:
        """Return the percentage by the parts that are over, unless more is known."""
        before = self._before(part)
        if part is None or before is None:
            return None
        percent, known = _percent(before, part.total), self.found.percent
        return percent if known is None or (percent or 0) > known else None

    def _show_whole(self, count: _Count, left: int | None, metrics: dict[str, float]) -> None:
        """Show a count of all steps, unless it starts again or its total changes: then it is not of the whole job."""
        before, self._whole = self._whole, count
        if before is not None and (count.done < before.done or count.total != before.total):
            self._starts_again = True
            self.found = Observation(metrics=self.found.metrics)
        if self._starts_again or (count.total is not None and count.done > count.total):
            self._show(Observation(metrics=metrics))
            return
        percent = _percent(*count) if count.total else None
        self._show(Observation(count.done, count.total, percent, left, metrics))

    def _show(self, new: Observation) -> None:
        """Take what is new; metrics stay until they are printed again, and so do steps."""
        metrics = {**self.found.metrics, **new.metrics}
        base = new if new.step is not None or new.percent is not None else self.found
        self.found = Observation(base.step, base.total, base.percent, base.remaining, metrics)


def _loss(text: str) -> Iterator[tuple[str, float]]:
    """Yield the loss of the training, the first if there are several."""
    for found in _LOSS.finditer(text):
        value = float(found[2])
        if isfinite(value) and not _EVALUATES.fullmatch(found[1] or ""):
            yield "loss", value
            return


def _shown(part: _Count | None) -> dict[str, float]:
    return {} if part is None else {"epoch": float(part.done)}


def _without_counts(line: str) -> str:
    """Return the line without the names of counts: `val step 5` is no line of the training because of its step."""
    return _COUNTS_STEPS.sub("", _PART.sub("", line))


def _percent(done: int, total: int | None) -> int | None:
    return min(100 * done // total, 100) if total else None


def _left(rest: str) -> int | None:
    """Return the remaining seconds that a bar shows."""
    found = _LEFT.search(rest)
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (hours * 60 + minutes) * 60 + seconds
