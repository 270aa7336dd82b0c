"""`validate FILE`: what the API server would refuse, and why."""

import click

from pytorchjob_operator.plan_command import read_or_exit


@click.command("validate")
@click.argument("file", metavar="FILE")
def validate_command(file: str) -> None:
    """Check the jobs of a file by the API server's rules.

    FILE - is standard input.
    """
    from pytorchjob_operator.model.deprecated import warnings

    for job in read_or_exit(file):
        for warning in warnings(job):
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"{file}: PyTorchJob {job.metadata.name} is valid")
