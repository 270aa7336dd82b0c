"""`run`: a job on this machine."""

import sys

import click

from pytorchjob.commands.outcome import fail
from pytorchjob.commands.plan import refuse
from pytorchjob_operator.errors import CannotRun, InvalidJob


@click.command("run")
@click.argument("file", metavar="[FILE]", required=False)
@click.option("-f", "--file", "named", metavar="FILE", help="The same; - is standard input.")
@click.option("--job", metavar="NAME", help="The job to run, if the file contains several.")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace that the replicas see. Default: the file's.")
@click.option("--replicas", type=click.IntRange(min=1), metavar="N", help="Number of workers. Default: the file's.")
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    metavar="N",
    help="Restarts after failures before the job fails, unless restartPolicy is Never. Default: the file's.",
)
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
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print every line of the replicas, also tracebacks that repeat another or follow from one.",
)
@click.option(
    "--status-file",
    metavar="FILE",
    help="Keep the job with its present status in this file, as JSON; it is complete at any moment.",
)
@click.option(
    "--map",
    "maps",
    metavar="IMAGE=HERE",
    multiple=True,
    help="Folder of the image, and the folder of this machine with its content, for example /workspace=.",
)
def run_command(
    file: str | None,
    named: str | None,
    job: str | None,
    namespace: str | None,
    replicas: int | None,
    max_restarts: int | None,
    timeout: float | None,
    grace: float | None,
    output: str | None,
    verbose: bool,
    status_file: str | None,
    maps: tuple[str, ...],
) -> None:
    """Run the job of a YAML file on this machine. Each replica is a process group with its own address.

    Names, ranks, restarts and conditions are the same as in a cluster. SIGHUP reads the file again and scales the
    workers to the new number. Ctrl-C stops all replicas, a second Ctrl-C kills them.

    Exit status: 0 succeeded, 1 failed, 2 the file or the command line is wrong, 124 timed out, 130 interrupted.
    """
    from pytorchjob.local.image_paths import read_map
    from pytorchjob.local.run_command import RunOptions, run

    try:
        folders = tuple(map(read_map, maps))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--map") from error
    path = _only(file, named)
    options = RunOptions(
        path, job, namespace, replicas, timeout, grace, output, verbose, status_file, folders, max_restarts
    )
    try:
        status = run(options)
    except InvalidJob as error:
        sys.exit(refuse(error))
    except CannotRun as error:
        fail(str(error))
    sys.exit(status)


def _only(file: str | None, named: str | None) -> str:
    """Return the file, which is given as an argument or by -f; raises UsageError without a file, and for two."""
    if file is None and named is None:
        raise click.UsageError("no file is given: `pytorchjob run FILE`, or -f FILE")
    if file is not None and named is not None:
        raise click.UsageError("give the file once: `pytorchjob run FILE`, or -f FILE")
    return file or named or ""
