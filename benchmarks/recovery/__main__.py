"""`python -m benchmarks.recovery run|series|table`: faults on the cluster of `make cluster`, ours beside torchrun."""

import signal
import sys
from pathlib import Path

import click

from benchmarks.recovery import chaos, ledgers, measure, plot, results, series
from benchmarks.recovery.cells import FAULTS
from benchmarks.recovery.contenders import CONTENDERS
from benchmarks.recovery.results import Repetition
from benchmarks.recovery.stage import Stage, stage

OUT = Path(__file__).with_name("repetitions.jsonl")
SERIES = OUT.with_name("series.jsonl")
PLOT = OUT.with_name("faults.svg")
CHAOS = OUT.with_name("chaos.jsonl")
_OUT = click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Where repetitions are kept.")
_INSTALLED = click.option("--installed", is_flag=True, help="Take the operator that runs in the cluster as it is.")


def _names(_: click.Context, option: click.Parameter, given: str) -> list[str]:
    known = {"cells": FAULTS, "contenders": CONTENDERS}[str(option.name)]
    if given == "none":
        return []
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return names


@click.group()
def cli() -> None:
    """How long training stands still after a fault."""
    # Whoever ends a run gets the nodes back as they were, and no namespace is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@cli.command()
@click.option("--cells", default="", callback=_names, help="Faults, by name, with commas; all without it.")
@click.option(
    "--contenders", default="default,tuned,tuned-forkserver,ours,ours-warm", callback=_names, show_default=True
)
@click.option(
    "--repetitions", default=20, show_default=True, help="How many each cell shall have, those kept included."
)
@_OUT
@_INSTALLED
def run(cells: list[str], contenders: list[str], repetitions: int, out: Path, installed: bool) -> None:
    """Measure what is not measured yet; may be stopped and started again."""
    with stage(installed) as here:
        for fault in cells:
            for contender in contenders:
                _cell(here, contender, fault, repetitions, out)
    click.echo(results.table(results.load(out)))


def _cell(here: Stage, contender: str, fault: str, repetitions: int, out: Path) -> None:
    done = [
        repetition for repetition in results.load(out) if (repetition.contender, repetition.fault) == (contender, fault)
    ]

    def more(last: Repetition | None) -> bool:
        if last:
            done.append(last)
            results.append(out, last)
            click.echo(f"{fault} {contender} {len(done)}: {last}")
        return len(done) < repetitions

    measure.measure(here, CONTENDERS[contender], FAULTS[fault], more)


@cli.command()
@_OUT
@click.option("--write", is_flag=True, help="Put it into benchmarks/recovery/README.md.")
def table(out: Path, write: bool) -> None:
    """Print the table of what is kept."""
    text = results.table(results.load(out))
    click.echo(text)
    if write:
        results.write(text, out.name)


@cli.command(name="series")
@click.option("--contenders", default="default,tuned,ours-warm", callback=_names, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=SERIES, help="Where series are kept.")
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), default=PLOT, help="The picture of all that are kept."
)
@_INSTALLED
def series_(contenders: list[str], out: Path, picture: Path, installed: bool) -> None:
    """Run contenders through ten faults each, six minutes for one, and draw step over time; `none` only draws."""
    if contenders:
        with stage(installed) as here:
            for name in contenders:
                series.keep(out, series.play(here, CONTENDERS[name]))
    picture.write_text(plot.svg(series.load(out)))
    click.echo(f"{picture}")


@cli.command(name="chaos")
@click.option("--contender", "name", default="ours-warm", show_default=True, type=click.Choice([*CONTENDERS]))
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=CHAOS, help="Where outcomes are kept.")
@_INSTALLED
def chaos_(name: str, minutes: float, seed: int, out: Path, installed: bool) -> None:
    """Four workers, a random fault about every half minute; fails if the job needed help.

    The outcomes of all contenders are also kept as text, and their ledgers as a picture, beside the file of --out.
    """
    with stage(installed) as here:
        outcome = chaos.play(here, CONTENDERS[name], minutes, seed)
    click.echo(outcome.words())
    found = chaos.keep(out, outcome)
    out.with_suffix(".txt").write_text("\n\n".join(each.words() for each in found) + "\n")
    out.with_suffix(".svg").write_text(ledgers.svg(found))
    if not outcome.recovered or outcome.problems:
        raise SystemExit(1)


if __name__ == "__main__":
    cli(prog_name="python -m benchmarks.recovery")
