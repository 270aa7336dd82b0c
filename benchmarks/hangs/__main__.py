"""`python -m benchmarks.hangs find|quiet|table`: how soon hangs are found, and that slow scripts are left alone."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks.hangs import measure, train
from benchmarks.hangs.measure import Run
from benchmarks.table import place, spread

FOUND, QUIET = (Path(__file__).with_name(f"{name}.jsonl") for name in ("found", "quiet"))
README = Path(__file__).with_name("README.md")
_BEGIN = "<!-- begin: found.jsonl and quiet.jsonl, written by python -m benchmarks.hangs table --write -->"
_LIMIT_SECONDS = 400.0
_KINDS = click.option("--kinds", default="", help="By name, with commas; all without it.")


@click.group()
def cli() -> None:
    """Hangs of scripts that report nothing, with default settings."""


@cli.command()
@_KINDS
@click.option("--repeat", default=3, show_default=True)
@click.option("--together", default=2, show_default=True, help="How many jobs run at the same time.")
def find(kinds: str, repeat: int, together: int) -> None:
    """Measure how long each kind of hang lasts until it is found."""
    _all(_names(kinds, train.hangs) * repeat, lambda kind: measure.run(kind, _LIMIT_SECONDS), FOUND, together)


@cli.command()
@_KINDS
@click.option("--seconds", default=3600.0, show_default=True, help="How long each job runs.")
@click.option("--together", default=len(train.slow), show_default=True, help="How many jobs run at the same time.")
def quiet(kinds: str, seconds: float, together: int) -> None:
    """Run each kind of slow script, and count the alarms: there must be none."""
    _all(_names(kinds, train.slow), lambda kind: measure.run(kind, seconds), QUIET, together)


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
    found, slow = _by_kind(FOUND), _by_kind(QUIET)
    lines = ["| hang | found after | not found | reported as |", "| --- | --- | --- | --- |"]
    for kind, runs in found.items():
        alarmed = [run for run in runs if run.alarm]
        times = spread([run.seconds for run in alarmed], digits=0) if alarmed else "-"
        last = alarmed[-1].alarm if alarmed else ""
        lines.append(f"| {_words(train.hangs, kind)} | {times} | {len(runs) - len(alarmed)} | {last} |")
    lines += ["", _where(found), "", "| slow | ran for | alarms |", "| --- | --- | --- |"]
    for kind, runs in slow.items():
        alarms = sum(1 for run in runs if run.alarm)
        lines.append(f"| {_words(train.slow, kind)} | {max(run.seconds for run in runs):.0f} s | {alarms} |")
    return "\n".join([*lines, "", _where(slow)])


def _where(found: dict[str, list[Run]]) -> str:
    runs = [run for each in found.values() for run in each]
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
    with ThreadPoolExecutor(together) as pool:
        for found in pool.map(run, kinds):
            click.echo(f"{found.kind}: {found.alarm or 'no alarm'} ({found.seconds:.0f} s)")
            with out.open("a") as file:
                file.write(json.dumps(found.row()) + "\n")


def _by_kind(path: Path) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        run = Run(**json.loads(line))
        found.setdefault(run.kind, []).append(run)
    return found


def _words(kinds: dict[str, Callable[[], None]], kind: str) -> str:
    return (kinds[kind].__doc__ or kind).strip().rstrip(".").replace("|", "/")


if __name__ == "__main__":
    cli()
