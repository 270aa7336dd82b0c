"""`validate FILE`: what the API server would refuse, and why."""

from collections.abc import Callable
from contextlib import suppress

import click

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import AlreadyExists
from pytorchjob.commands.options import with_connect
from pytorchjob.commands.plan import read_or_exit
from pytorchjob_operator import names
from pytorchjob_operator.terminal import say


@click.command("validate")
@click.argument("file", metavar="FILE")
@click.option(
    "--server",
    is_flag=True,
    help="Ask the cluster too: about the objects of the file, and about the pods and the Service that the operator"
    " would make. Nothing is stored.",
)
@with_connect
def validate_command(connect: Callable[[], Cluster], file: str, server: bool) -> None:
    """Check the jobs of a file by the API server's rules.

    Without --server no cluster is needed. FILE - is standard input.
    """
    from pytorchjob_operator.model import deprecated, kept_saves

    if server:
        _ask(connect, file)
        return
    for job in read_or_exit(file):
        for warning in (*deprecated.warnings(job), *kept_saves.warnings(job.spec.to_api())):
            say(f"warning: {warning}", err=True)
        say(f"{file}: PyTorchJob {job.metadata.name} is valid")


def _ask(connect: Callable[[], Cluster], file: str) -> None:
    from pytorchjob.commands import submit
    from pytorchjob.commands.server_check import check_planned
    from pytorchjob.screen import plain

    objects = submit.read_or_exit((file,))
    cluster = connect()
    for body in objects:
        with suppress(AlreadyExists):  # a name is compared last: the object itself is accepted
            cluster.create(body, dry_run=True)
    complete = check_planned(cluster, objects)
    for body in objects:
        ending = " with all that it becomes" if complete and body["kind"] == names.KIND else ""
        say(f"{file}: the cluster accepts {plain.reference(body)}{ending}")
