"""`python -m benchmarks [NAME]`: all without a name; --write keeps the figures and renews the rows of README.md."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import click

from benchmarks import (
    caches,
    create,
    fairness,
    goodput,
    jobs,
    life,
    local,
    memory,
    ports,
    progress,
    queues,
    rendezvous,
    saves,
    start,
    status,
    steady,
    table,
    warm,
)
from benchmarks.table import Row

Measurement = Coroutine[Any, Any, list[Row]]


@click.group(invoke_without_command=True)
@click.pass_context
def cli(context: click.Context) -> None:
    """Measure, print the table, and rewrite the one of benchmarks/README.md (a single benchmark: with --write)."""
    if context.invoked_subcommand is None:
        created = [create.measure(pods, repeat) for pods, repeat in ((200, 5), (1000, 5))]
        _show(
            [
                *created,
                jobs.measure(100, 3),
                fairness.measure(16, 10_000, 10),
                life.measure(200),
                memory.measure(5000),
                local.measure(5),
                rendezvous.measure(1000, 5),
                ports.measure(5),
                progress.measure(5),
                warm.measure(5),
                caches.measure(3),
                start.measure(10),
                status.measure(5),
                steady.measure(60),
                goodput.measure(20),
                saves.measure(10),
            ]
        )


@cli.command(name="create")
@click.option("--pods", default=200, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--write", is_flag=True)
def create_(pods: int, repeat: int, write: bool) -> None:
    """Pods of one job, against a raw client."""
    _show([create.measure(pods, repeat)], write)


@cli.command(name="jobs")
@click.option("--jobs", "count", default=100, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--write", is_flag=True)
def jobs_(count: int, repeat: int, write: bool) -> None:
    """Many small jobs at once."""
    _show([jobs.measure(count, repeat)], write)


@cli.command(name="fairness")
@click.option("--jobs", default=16, show_default=True)
@click.option("--pods", default=10_000, show_default=True)
@click.option("--repeat", default=10, show_default=True)
@click.option("--write", is_flag=True)
def fairness_(jobs: int, pods: int, repeat: int, write: bool) -> None:
    """A small job beside the large jobs of another namespace."""
    _show([fairness.measure(jobs, pods, repeat)], write)


@cli.command(name="life")
@click.option("--pods", default=200, show_default=True)
@click.option("--write", is_flag=True)
def life_(pods: int, write: bool) -> None:
    """Requests of one job's life, from the audit log."""
    _show([life.measure(pods)], write)


@cli.command(name="memory")
@click.option("--pods", default=5000, show_default=True)
@click.option("--write", is_flag=True)
def memory_(pods: int, write: bool) -> None:
    """Resident memory of the operator."""
    _show([memory.measure(pods)], write)


@cli.command(name="local")
@click.option("--repeat", default=5, show_default=True)
@click.option("--write", is_flag=True)
def local_(repeat: int, write: bool) -> None:
    """`pytorchjob run`, against torchrun."""
    _show([local.measure(repeat)], write)


@cli.command(name="rendezvous")
@click.option("--agents", default=1000, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--write", is_flag=True)
def rendezvous_(agents: int, repeat: int, write: bool) -> None:
    """The coordinator with simulated agents, without and with TLS."""
    _show([rendezvous.measure(agents, repeat)], write)


@cli.command(name="ports")
@click.option("--repeat", default=5, show_default=True)
@click.option("--write", is_flag=True)
def ports_(repeat: int, write: bool) -> None:
    """A fetch at each port of an agent, beside connections that ask for nothing."""
    _show([ports.measure(repeat)], write)


@cli.command(name="progress")
@click.option("--repeat", default=5, show_default=True)
@click.option("--write", is_flag=True)
def progress_(repeat: int, write: bool) -> None:
    """What a script's own calls cost, and the agent's check of its workers."""
    _show([progress.measure(repeat)], write)


@cli.command(name="queues")
@click.option("--jobs", "count", default=1000, show_default=True)
@click.option("--admitted", default=100, show_default=True)
@click.option("--write", is_flag=True)
def queues_(count: int, admitted: int, write: bool) -> None:
    """Jobs that wait in a queue of Kueue, with Workloads of the operator's own and with Kueue's integration."""
    _show([queues.measure(count, admitted)], write)


@cli.command(name="start")
@click.option("--repeat", default=10, show_default=True)
@click.option("--write", is_flag=True)
def start_(repeat: int, write: bool) -> None:
    """Each command of `pytorchjob` from its start to its end, against kubectl."""
    _show([start.measure(repeat)], write)


@cli.command(name="status")
@click.option("--repeat", default=5, show_default=True)
@click.option("--write", is_flag=True)
def status_(repeat: int, write: bool) -> None:
    """From a fault to the screen of `pytorchjob status` that names its cause."""
    _show([status.measure(repeat)], write)


@cli.command(name="saves")
@click.option("--repeat", default=10, show_default=True)
@click.option("--only", type=click.Choice([*saves.PARTS]), default=None)
@click.option("--write", is_flag=True)
def saves_(repeat: int, only: str | None, write: bool) -> None:
    """Checkpoints in memory: a save, a lost pod, the steady cost."""
    _show([saves.measure(repeat, only or "")], write)


@cli.command(name="steady")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--write", is_flag=True)
def steady_(seconds: float, write: bool) -> None:
    """An agent's CPU while its workers train."""
    _show([steady.measure(seconds)], write)


@cli.command(name="goodput")
@click.option("--repeat", default=20, show_default=True)
@click.option("--write", is_flag=True)
def goodput_(repeat: int, write: bool) -> None:
    """The ledger of a scripted life, against the script's own clock."""
    _show([goodput.measure(repeat)], write)


@cli.command(name="caches")
@click.option("--repeat", default=3, show_default=True)
@click.option("--write", is_flag=True)
def caches_(repeat: int, write: bool) -> None:
    """The first step of a compiled model, with and without the caches of a peer."""
    _show([caches.measure(repeat)], write)


@cli.command(name="warm")
@click.option("--repeat", default=5, show_default=True)
@click.option("--write", is_flag=True)
def warm_(repeat: int, write: bool) -> None:
    """Workers of DDP to their first step, forked and new."""
    _show([warm.measure(repeat)], write)


@cli.command(name="table")
def table_() -> None:
    """Make the table of README.md again, of measurements.jsonl."""
    table.write()


def _show(measurements: list[Measurement], write: bool = True) -> None:
    rows: list[Row] = []
    for measurement in measurements:
        rows += asyncio.run(measurement)
    click.echo(f"{table.machine()}\n\n{table.render(rows)}")
    if write:
        table.append(rows)
        table.write()


if __name__ == "__main__":
    cli(prog_name="python -m benchmarks")
