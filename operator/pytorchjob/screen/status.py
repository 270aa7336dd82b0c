"""The screen of one job: plain lines, which a terminal shows in colour."""

from collections.abc import Iterator
from datetime import datetime

from pytorchjob.screen import plain
from pytorchjob.screen.colour import StyledLine, paint
from pytorchjob.view.causes.cause import Finding
from pytorchjob.view.job_view import JobView, ProgressView, RoundView
from pytorchjob.view.queueing import MOST, Place, QueueView
from pytorchjob.view.restarts import Restarts
from pytorchjob.view.rows import Row, counts
from pytorchjob.view.state import State
from pytorchjob_operator.rounds.values import count

_HEADER = ("ROLE", "RANKS", "POD", "NODE", "PHASE", "STATE", "RESTARTS", "STEP", "LAST LINE")
_GOOD = (State.TRAINING, State.RUNNING, State.SUCCEEDED)
_BAD = (State.FAILED, State.CRASHING, State.REFUSED)
_MOST_ROWS = 64
_LINE = 60


def status_lines(view: JobView) -> Iterator[StyledLine]:
    """Yield the lines of the screen."""
    yield StyledLine(f"PyTorchJob {view.namespace}/{view.name}", "bold")
    since = f" for {_age(view.since, view.now)}" if view.since else ""
    yield StyledLine(f"State:     {view.state.value}{since}", _colour(view.state))
    yield StyledLine(f"Reason:    {view.reason}")
    yield from (StyledLine(f"Noticed:   {noticed.why}", "yellow") for noticed in view.observations)
    age = _age(view.created, view.now) if view.created else "unknown"
    succeeded = f", {view.succeeded} succeeded" if view.succeeded else ""
    yield StyledLine(
        f"Pods:      {view.ready}/{view.wanted} ready{succeeded}, {_all_restarts(view.restarts)}, age {age}"
    )
    if view.queue:
        yield StyledLine(f"Queue:     {_queue(view.queue, view.now)}")
    if view.round:
        yield from _round(view.round, view.now)
    if view.progress:
        yield StyledLine(f"Progress:  {_progress(view.progress, view.now)}")
    if view.time and view.time.sentence:
        yield StyledLine(f"Time:      {view.time.sentence}")
    yield from _table(view.rows)
    yield from _recent(view)
    for finding in view.findings[1:]:
        yield StyledLine(f"Also:      {finding.why}")
    if view.next_step:
        command = f"  {view.next_command}" if view.next_command else ""
        yield StyledLine("")
        yield StyledLine(f"Next:      {view.next_step}{command}", "bold")


def print_status(view: JobView) -> str:
    """Return the screen as text, in colour if stdout is a terminal."""
    return paint(status_lines(view))


def _queue(queue: QueueView, now: datetime) -> str:
    parts = [_place(queue.place)] if queue.place else []
    if queue.pods:
        waiting = count(len(queue.pods), "more worker")
        since = f" for {_age(queue.since, now)}" if queue.since else ""
        said = f": {queue.message}" if queue.message else ""
        parts.append(f"{waiting} {'waits' if len(queue.pods) == 1 else 'wait'}{since}{said}")
    return ", ".join([queue.name, *parts])


def queue_words(queue: QueueView, now: datetime) -> str:
    """Return where a job waits, how long, and the code of what it waits for."""
    since = f"for {_age(queue.since, now)}" if queue.since else ""
    return ", ".join(filter(None, (queue.name, _place(queue.place) if queue.place else "", since, queue.reason)))


def _place(place: Place) -> str:
    more = " or more" if place.waiting >= MOST else ""
    others = "" if place.overall == place.position else f" ({place.overall} in its ClusterQueue)"
    return f"place {place.position} of {place.waiting}{more}{others}"


def _round(round_: RoundView, now: datetime) -> Iterator[StyledLine]:
    size = (
        f"{count(round_.members, 'pod')}, {count(round_.workers or 0, 'worker')}"
        if round_.members is not None
        else "no round yet"
    )
    yield StyledLine(f"Round:     {round_.id or '-'}: {size}{_inside(round_)}")
    if round_.without:
        names = ", ".join(round_.without[:3])
        yield StyledLine(f"Without:   {names}, until the script's next save")
    if round_.survive:
        yield StyledLine(f"Survives:  {round_.survive}")
    if round_.last_restart:
        when = f"{_age(round_.last_restart_at, now)} ago, " if round_.last_restart_at else ""
        yield StyledLine(f"Restarted: {when}{round_.last_restart}")


def _progress(progress: ProgressView, now: datetime) -> str:
    of = f" of {progress.total}" if progress.total is not None else ""
    parts = [f"step {progress.step}{of}" if progress.step is not None else ""]
    parts += [f"{progress.percent}%" if progress.percent is not None else ""]
    parts += [f"{plain.age(progress.remaining_seconds)} left" if progress.remaining_seconds is not None else ""]
    parts += [f"{name} {value:g}" for name, value in progress.metrics.items()]
    parts += [f"reported {_age(progress.at, now)} ago" if progress.at else ""]
    return ", ".join(part for part in parts if part)


def _table(rows: tuple[Row, ...]) -> Iterator[StyledLine]:
    """Yield the pods; of very many, those that do not run."""
    if not rows:
        return
    shown = rows if len(rows) <= _MOST_ROWS else [row for row in rows if row.phase != "Running"][:_MOST_ROWS]
    yield StyledLine("")
    if len(shown) < len(rows):
        phases = ", ".join(f"{count} {phase}" for phase, count in counts(rows))
        yield StyledLine(f"{len(rows)} pods: {phases}. `-o json` shows all of them.")
    lines = plain.columns(_HEADER, [_cells(row) for row in shown]).splitlines()
    yield StyledLine(lines[0], "bold")
    for row, line in zip(shown, lines[1:], strict=True):
        yield StyledLine(
            line, "" if row.phase in ("Running", "Succeeded") else "yellow" if row.phase != "Failed" else "red"
        )


def _cells(row: Row) -> tuple[str, ...]:
    line = f"(before the restart) {row.last_line}" if row.before_restart else row.last_line
    last = line if len(line) <= _LINE else f"{line[: _LINE - 3]}..."
    place = f"{row.role.lower()}-{row.index}"
    step = "" if row.step is None else str(row.step)
    cells = (place, row.ranks, row.pod, row.node, row.phase, row.state, str(row.restarts), step, last)
    return tuple(cell or "-" for cell in cells)


def _recent(view: JobView) -> Iterator[StyledLine]:
    if not view.recent:
        return
    yield StyledLine("")
    yield StyledLine("Recently:", "bold")
    for happened in view.recent:
        when = f"{_age(happened.at, view.now)} ago" if happened.at else "-"
        yield StyledLine(f"  {when:<10} {happened.reason}: {happened.text}")


def finding_lines(finding: Finding, number: int) -> Iterator[StyledLine]:
    """Yield a cause with its evidence and its remedy."""
    yield StyledLine(f"{number}. {finding.cause.name}: {finding.why}", "red")
    yield from _details(finding)


def noticed_lines(finding: Finding) -> Iterator[StyledLine]:
    """Yield an observation, and what a person can do about it."""
    yield StyledLine(f"Noticed: {finding.cause.name}: {finding.why}", "yellow")
    yield from _details(finding)


def _details(finding: Finding) -> Iterator[StyledLine]:
    if len(finding.pods) > 1:
        more = f" and {len(finding.pods) - 4} more" if len(finding.pods) > 4 else ""
        yield StyledLine(f"   pods: {', '.join(finding.pods[:4])}{more}")
    yield from (StyledLine(f"   seen: {evidence.source}: {evidence.text}") for evidence in finding.evidence)
    for step in finding.steps:
        yield StyledLine(f"   - {step.text}")
        if step.command:
            yield StyledLine(f"     $ {step.command}", "cyan")


def _colour(state: State) -> str:
    return "green" if state in _GOOD else "red" if state in _BAD else "yellow"


def _all_restarts(restarts: Restarts) -> str:
    """Return the restarts, and which of those that count ends the job."""
    number, counted, end = restarts.total, restarts.counted, restarts.ends_at
    if end is None:
        return _restarts(number)
    if number == counted:
        return f"{number} of {end} restarts (the job fails at {end}: backoffLimit)"
    return f"{_restarts(number)}, {counted} of {end} count (the job fails at {end}: backoffLimit)"


def _inside(round_: RoundView) -> str:
    """Return the restarts inside pods, and how many are allowed."""
    number, most, seconds = round_.restarts, round_.max_restarts, round_.window_seconds
    if most is None:
        return f", {_restarts(number)} inside pods" if number else ""
    if seconds is not None:
        return f", {_restarts(number)} inside pods (maxRestarts: {most} within {plain.age(seconds)})"
    return f", {number} of {_restarts(most)} inside pods (maxRestarts)"


def _restarts(number: int) -> str:
    return f"{number} restart" if number == 1 else f"{number} restarts"


def _age(moment: datetime | None, now: datetime) -> str:
    return plain.age((now - moment).total_seconds()) if moment else "-"
