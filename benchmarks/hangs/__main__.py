"""`python -m benchmarks.hangs find|quiet|table`: how soon hangs are found, and that slow scripts are left alone."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks.hangs import measure, train
from benchmarks.hangs.measure import Run
from benchmarks.table import spread

FOUND, QUIET = (Path(__file__).with_name(f"{name}.jsonl") for name in ("found", "quiet"))
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
def table() -> None:
    """Print the tables of the README from the raw data."""
    click.echo("| hang | found after | reported as |\n| --- | --- | --- |")
    for kind, runs in _by_kind(FOUND).items():
        times = spread([run.seconds for run in runs if run.alarm])
        click.echo(f"| {_words(train.hangs, kind)} | {times} | {runs[-1].alarm or 'not found'} |")
    click.echo("\n| slow | ran for | alarms |\n| --- | --- | --- |")
    for kind, runs in _by_kind(QUIET).items():
        alarms = [run.alarm for run in runs if run.alarm]
        click.echo(f"| {_words(train.slow, kind)} | {max(run.seconds for run in runs):.0f} s | {len(alarms)} |")


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
