"""`pytorchjob`: run a job on this machine, show its plan, check its file; no cluster is contacted.

This module only defines the command line. Each command imports what it needs when it runs, so that `--help` is fast.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pytorchjob_operator import __version__
from pytorchjob_operator.errors import CannotRun, InvalidJob, OperatorError

if TYPE_CHECKING:
    from pytorchjob_operator.model import PyTorchJob
    from pytorchjob_operator.observed import Observed, Options

FAILED = 1
INVALID = 2
_FILE = click.argument("file", metavar="FILE")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pytorchjob")
def main() -> None:
    """Run, plan and check kubeflow.org/v1 PyTorchJobs without a cluster."""


@main.command("run")
@click.option("-f", "--file", "path", metavar="FILE", required=True, help="The job's YAML file; - is standard input.")
@click.option("--job", metavar="NAME", help="The job to run, if the file contains several.")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace that the replicas see. Default: the file's.")
@click.option("--replicas", type=click.IntRange(min=1), metavar="N", help="Number of workers. Default: the file's.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop the job after this time, with exit status 124.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Time from SIGTERM to SIGKILL. Default: the template's terminationGracePeriodSeconds, or 5.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml"]),
    help="Print the final object to stdout and everything else to stderr.",
)
def run_command(  # noqa: PLR0913 - one parameter per option
    path: str,
    job: str | None,
    namespace: str | None,
    replicas: int | None,
    timeout: float | None,
    grace: float | None,
    output: str | None,
) -> None:
    """Run a job on this machine. Each replica is a process group with its own address.

    Names, ranks, restarts and conditions are the same as in a cluster. SIGHUP reads the file again and scales the
    workers to the new number. Ctrl-C stops all replicas, a second Ctrl-C kills them.

    Exit status: 0 succeeded, 1 failed, 2 the file or the command line is wrong, 124 timed out, 130 interrupted.
    """
    from pytorchjob_operator.local.run_command import RunOptions, run

    try:
        status = run(RunOptions(path, job, namespace, replicas, timeout, grace, output))
    except InvalidJob as error:
        sys.exit(_refuse(error))
    except CannotRun as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(FAILED)
    sys.exit(status)


@main.command("validate")
@_FILE
def validate_command(file: str) -> None:
    """Check the jobs of a file by the API server's rules.

    FILE - is standard input.
    """
    from pytorchjob_operator.model.deprecated import warnings

    for job in _read(file):
        for warning in warnings(job):
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"{file}: PyTorchJob {job.metadata.name} is valid")


@main.command("plan")
@_FILE
def plan_command(file: str) -> None:
    """Print the objects that the installed operator would create.

    The output is YAML, for each job of the file. FILE - is standard input. The operator has the chart's default values;
    its environment variables change them, for example PYTORCHJOB_OPERATOR_COORDINATOR=false. The cluster sets the job's
    uid and the coordinator's certificate.
    """
    from pytorchjob_operator import installed

    try:
        options = installed.options(os.environ)
    except OperatorError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(INVALID)
    for job in _read(file):
        for document in plan_documents(job, options):
            click.echo(document, nl=False)


def plan_documents(job: "PyTorchJob", options: "Options") -> Iterator[str]:
    """Yield the objects that the first plan of a job creates as YAML documents, the plan's reason first."""
    from pytorchjob_operator.local.source import as_stored, override
    from pytorchjob_operator.observed import Observed
    from pytorchjob_operator.plan import make_plan

    now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
    seen = Observed(as_stored(override(job, None, None)), now, options=options)
    yield f"# {job.metadata.name}: {make_plan(seen).reason}\n"
    for manifest in _manifests(seen):
        yield f"---\n# {manifest['kind']} {manifest['metadata']['name']}\n{_to_yaml(manifest)}"


def _manifests(seen: "Observed") -> "Iterator[dict[str, Any]]":
    """Yield what the plan creates; with a gang scheduler also the pods that follow once the PodGroup is admitted."""
    from pytorchjob_operator.observed import Child
    from pytorchjob_operator.plan import make_plan
    from pytorchjob_operator.plan.writes import CreateChild, CreatePod, manifests

    plan = make_plan(seen)
    yield from manifests(plan)
    if any(isinstance(write, CreatePod) for write in plan.writes):
        return
    writes = [write for write in plan.writes if isinstance(write, CreateChild)]
    admitted = tuple(Child.from_api(write.kind, {**write.body, "status": {"phase": "Inqueue"}}) for write in writes)
    yield from manifests(make_plan(replace(seen, children=admitted)))


def _to_yaml(manifest: object) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes shared parts of the pods' templates out instead of using YAML anchors, which are hard to read."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return str(yaml.dump(manifest, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def _read(file: str) -> list["PyTorchJob"]:
    from pytorchjob_operator.local.source import read_jobs

    try:
        return read_jobs(file)
    except InvalidJob as error:
        sys.exit(_refuse(error))


def _refuse(error: InvalidJob) -> int:
    """Print all problems, one per line, and return the exit status."""
    for line in str(error).splitlines():
        click.echo(f"error: {line}", err=True)
    return INVALID


if __name__ == "__main__":
    main()
