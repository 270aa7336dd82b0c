"""`python -m benchmarks.hangs find|quiet|table`: how soon hangs are found, and that slow scripts are left alone."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks.hangs import measure, train
from benchmarks.hangs.expected import mistakes
from benchmarks.hangs.measure import Run
from benchmarks.table import place, spread

FOUND, QUIET = (Path(__file__).with_name(f"{name}.jsonl") for name in ("found", "quiet"))
README = Path(__file__).with_name("README.md")
_BEGIN = "<!-- begin: found.jsonl and quiet.jsonl, written by python -m benchmarks.hangs table --write -->"
_LIMIT_SECONDS = 400.0
_TITLES = {
    "none": "Without any setting, scripts that report nothing:",
    "progress": "With `progressSeconds: {progressSeconds}`, scripts that report their steps:",
    "idle": "With `idleSeconds: {idleSeconds}`, scripts that report nothing:",
}
_KINDS = click.option("--kinds", default="", help="By name, with commas; all without it.")


@click.group()
def cli() -> None:
    """Hangs of scripts that report nothing, with default settings."""


@cli.command()
@_KINDS
@click.option(
    "--limits", type=click.Choice([*measure.LIMITS]), default="none", show_default=True, help="See measure.py."
)
@click.option("--ranks", default=3, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--together", default=2, show_default=True, help="How many jobs run at the same time.")
def find(kinds: str, limits: str, ranks: int, repeat: int, together: int) -> None:
    """Measure how long each kind of hang lasts until it is found, and what is said of it."""
    names = _names(kinds, train.hangs) * repeat
    _all(names, lambda kind: measure.run(kind, limits, ranks, _LIMIT_SECONDS), FOUND, together)


@cli.command()
@_KINDS
@click.option("--seconds", default=3600.0, show_default=True, help="How long each job runs.")
@click.option("--together", default=len(train.slow), show_default=True, help="How many jobs run at the same time.")
def quiet(kinds: str, seconds: float, together: int) -> None:
    """Run each kind of slow script, and count the alarms: there must be none."""
    _all(_names(kinds, train.slow), lambda kind: measure.run(kind, "none", 2, seconds), QUIET, together)


@cli.command()
@click.option("--write", is_flag=True, help="Put them into benchmarks/hangs/README.md.")
def table(write: bool) -> None:
    """Print the tables of the README from the raw data."""
    click.echo(tables())
    if write:
        write_tables(README)


def write_tables(path: Path) -> None:
    """Put the tables into their place in a file; raises ValueError where it has none."""
    before, _, after = place(path, _BEGIN)
    path.write_text(f"{before}\n{tables()}\n{after}")


def tables() -> str:
    """Return the tables of all runs that were kept, with the machine and the days of each table."""
    found, slow = _read(FOUND), _read(QUIET)
    parts = [_found_table(name, [run for run in found if run.limits == name]) for name in measure.LIMITS]
    lines = ["| slow | ran for | verdicts |", "| --- | --- | --- |"]
    for kind, runs in _by_kind(slow).items():
        verdicts = sum(1 for run in runs if run.verdict)
        lines.append(f"| {_words(train.slow, kind)} | {sum(run.seconds for run in runs):.0f} s | {verdicts} |")
    hours = sum(run.seconds for run in slow) / 3600
    lines += ["", f"{hours:.1f} hours of jobs together. {_where(slow)}"]
    return "\n".join([*filter(None, parts), "Slow scripts, without any setting:", "", *lines])


def _found_table(limits: str, found: list[Run]) -> str:
    if not found:
        return ""
    title = _TITLES[limits].format(**measure.LIMITS[limits])
    lines = [
        title,
        "",
        "| hang | runs | found after | mistakes | the last verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, runs in _by_kind(found).items():
        verdicts = [run.verdict for run in runs if run.verdict]
        times = spread([run.seconds for run in runs if run.verdict], digits=1) if verdicts else "-"
        wrong = [mistake for verdict in verdicts for mistake in mistakes(kind, verdict)]
        wrong += ["not found"] * (len(runs) - len(verdicts))
        counts = ", ".join(f"{mistake}: {number}" for mistake, number in sorted(Counter(wrong).items())) or "none"
        last = verdicts[-1].message if verdicts else ""
        lines.append(f"| {_words(train.hangs, kind)} | {len(runs)} | {times} | {counts} | {last} |")
    return "\n".join([*lines, "", _where(found), ""])


def _where(runs: list[Run]) -> str:
    machines, days = sorted({run.machine for run in runs}), sorted({run.date for run in runs})
    loads = sorted(float(run.load.partition(" ")[0]) for run in runs)
    between = f"{loads[0]:.1f} to {loads[-1]:.1f}" if loads else "-"
    return f"Machine: {'; '.join(machines)}. Days: {', '.join(days)}. Load before a run: {between}."


def _names(given: str, known: dict[str, Callable[[], None]]) -> list[str]:
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return names


def _all(kinds: Iterable[str], run: Callable[[str], Run], out: Path, together: int) -> None:
    def try_run(kind: str) -> Run | RuntimeError:
        try:
            return run(kind)
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(together) as pool:
        for found in pool.map(try_run, kinds):
            if isinstance(found, RuntimeError):
                click.echo(f"NO RESULT: {found}")
                continue
            wrong = ", ".join(mistakes(found.kind, found.verdict)) if found.verdict else ""
            said = found.verdict.message if found.verdict else "no verdict"
            click.echo(f"{found.kind}, {found.seconds:.1f} s: {said}{wrong and f' WRONG: {wrong}'}")
            with out.open("a") as file:
                file.write(json.dumps(found.row()) + "\n")


def _read(path: Path) -> list[Run]:
    return [Run.read(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def _by_kind(runs: list[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.kind, []).append(run)
    return found


def _words(kinds: dict[str, Callable[[], None]], kind: str) -> str:
    return (kinds[kind].__doc__ or kind).strip().rstrip(".").replace("|", "/")


if __name__ == "__main__":
    cli()
