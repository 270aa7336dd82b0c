"""`version`: of this command, of the operator, of the cluster."""

import json
from collections.abc import Callable
from typing import Any

import click

from pytorchjob import __version__
from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.commands.options import output_option, with_connect
from pytorchjob_operator import names

_SELECTOR = "app.kubernetes.io%2Fname%3Dpytorchjob-operator"
_OPERATORS = f"/apis/apps/v1/deployments?labelSelector={_SELECTOR}"
_VERSION_LABEL = "app.kubernetes.io/version"
_UNKNOWN = "unknown (this person may not read the operator's Deployment)"


@click.command("version")
@click.option("--client", is_flag=True, help="Only of this command; no cluster is contacted.")
@output_option("json")
@with_connect
def version_command(connect: Callable[[], Cluster], client: bool, output: str | None) -> None:
    """Print the versions of this command, of the operator and of the cluster."""
    found = {"client": __version__, **({} if client else _of_cluster(connect))}
    if output == "json":
        click.echo(json.dumps(found, indent=4))
        return
    for name, value in found.items():
        click.echo(f"{name}: {value}")


def _of_cluster(connect: Callable[[], Cluster]) -> dict[str, str]:
    """Return the answer of the cluster. The command does not fail if the cluster does not answer."""
    try:
        cluster = connect()
        server = cluster.read("/version") or {}
        known = cluster.read(f"/apis/{names.API_VERSION}")
        operators = cluster.read(_OPERATORS)
    except ClusterError as error:
        return {"cluster": f"not reachable: {error.message}"}
    return {
        "operator": _operator(operators) if known else "not installed",
        "api": names.API_VERSION if known else "not installed",
        "cluster": str(server.get("gitVersion") or "unknown"),
    }


def _operator(found: dict[str, Any] | None) -> str:
    if found is None:
        return _UNKNOWN
    versions = {
        (item["metadata"].get("labels") or {}).get(_VERSION_LABEL)
        or item["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2]
        for item in found.get("items") or ()
    }
    return ", ".join(sorted(versions)) or "no Deployment found"
