"""`version`: of this command, of the operator, of the cluster."""

import json
from collections.abc import Callable

import click

from pytorchjob import __version__
from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.cluster.versions import read_versions
from pytorchjob.commands.options import output_option, with_connect
from pytorchjob_operator.terminal import say


@click.command("version")
@click.option("--client", is_flag=True, help="Only of this command; no cluster is contacted.")
@output_option("json")
@with_connect
def version_command(connect: Callable[[], Cluster], client: bool, output: str | None) -> None:
    """Print the versions of this command, of the operator and of the cluster."""
    found = {"client": __version__, **({} if client else _of_cluster(connect))}
    if output == "json":
        say(json.dumps(found, indent=4))
        return
    for name, value in found.items():
        say(f"{name}: {value}")


def _of_cluster(connect: Callable[[], Cluster]) -> dict[str, str]:
    """Return the answer of the cluster. The command does not fail if the cluster does not answer."""
    try:
        return read_versions(connect())
    except ClusterError as error:
        return {"cluster": f"not reachable: {error.message}"}
