"""`submit`: create the objects of a file in the cluster; `--watch` follows its jobs to their end."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import AlreadyExists, Rejected
from pytorchjob.commands.deadline import deadline
from pytorchjob.commands.follow import follow
from pytorchjob.commands.options import DURATION, here, names_of, output_option, with_connect
from pytorchjob.commands.outcome import suggest
from pytorchjob.commands.plan import refuse
from pytorchjob.commands.server_check import check_planned
from pytorchjob.screen import plain
from pytorchjob.view import advice
from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.terminal import say

_NONE, _CLIENT, _SERVER = "none", "client", "server"
_DONE = {_NONE: "created", _CLIENT: "created (dry run)", _SERVER: "created (server dry run)"}


class DryRunCommand(click.Command):
    """Reads `--dry-run` without a value as kubectl does: it does not take the next argument as its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Complete the flag, then parse as usual."""
        return super().parse_args(ctx, [f"--dry-run={_SERVER}" if each == "--dry-run" else each for each in args])


@click.command("submit", cls=DryRunCommand)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@click.option("-f", "--filename", "named", metavar="FILE", multiple=True, help="The same; - is standard input.")
@click.option("-w", "--watch", is_flag=True, help="Follow the jobs until they end; exit status 1 if one fails.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop watching after this time, with exit status 124.")
@click.option(
    "--dry-run",
    type=click.Choice([_NONE, _CLIENT, _SERVER]),
    default=_NONE,
    help="client: check the file and stop. server: the API server checks it too, and the pods and the Service that the"
    " operator would make; nothing is stored. Alone: server.",
)
@output_option("json", "yaml", "name")
@with_connect
def submit_command(
    connect: Callable[[], Cluster],
    files: tuple[str, ...],
    named: tuple[str, ...],
    watch: bool,
    timeout: float | None,
    dry_run: str,
    output: str | None,
) -> None:
    """Create the jobs of files in the cluster, and the other objects that the files contain.

    All files are checked before the first object is created. A file may have several documents. An object of another
    kind that exists with the same content is left as it is. Ctrl-C ends --watch; the job continues.
    """
    if not files and not named:
        raise click.UsageError("no file is given: `pytorchjob submit FILE`, or -f FILE")
    objects = read_or_exit((*files, *named))
    if dry_run == _CLIENT:
        _print(objects, output, dry_run)
        return
    cluster = connect()
    _check_namespaces(objects, cluster.namespace, given=_namespace_given())
    made = [_create(cluster, body, output, dry_run) for body in objects]
    if dry_run == _SERVER:
        check_planned(cluster, objects)
    if output:
        _print(made, output, dry_run)
    jobs = [body for body in made if body["kind"] == names.KIND]
    if dry_run == _NONE and jobs:
        _after(cluster, jobs, watch, timeout)


def read_or_exit(paths: Iterable[str]) -> list[Object]:
    """Read and check all files; ends the process with 2 if there is a problem."""
    from pytorchjob.local.source import read_objects
    from pytorchjob_operator.model import deprecated, kept_saves
    from pytorchjob_operator.model.load import is_job, names_twice
    from pytorchjob_operator.model.parse import parse_job

    try:
        objects = [body for path in paths for body in read_objects(path)]
        if twice := names_twice(objects):
            raise InvalidJob(
                [Problem("", f"the files contain {' and '.join(twice)} twice: rename or remove one of them")]
            )
    except InvalidJob as error:
        sys.exit(refuse(error))
    for body in objects:
        job = parse_job(body) if is_job(body) else None
        found = () if job is None else (*deprecated.warnings(job), *kept_saves.warnings(job.spec.to_api()))
        for warning in found:
            say(f"warning: {warning}", err=True)
    return objects


def _namespace_given() -> bool:
    return bool(click.get_current_context().params.get("namespace"))


def _check_namespaces(objects: Sequence[Object], namespace: str, *, given: bool) -> None:
    """As kubectl: `-n` may not contradict a file."""
    for body in objects:
        own = body["metadata"].get("namespace")
        if given and own and own != namespace:
            name = plain.reference(body)
            raise Rejected(
                f"{name} belongs to the namespace {own}, not to {namespace}", "leave -n out, or change the file"
            )


def _create(cluster: Cluster, body: Object, output: str | None, dry_run: str) -> Object:
    try:
        made = cluster.create(body, dry_run=dry_run == _SERVER)
    except AlreadyExists as error:
        if body["kind"] != names.KIND and error.existing is not None and _contains(error.existing, body):
            if not output:
                say(f"{plain.reference(body)} unchanged")
            return error.existing
        raise _exists(error, body) from error
    if not output:
        say(f"{plain.reference(made)} {_DONE[dry_run]}")
    return made


def _exists(error: AlreadyExists, body: Object) -> AlreadyExists:
    name = body["metadata"].get("name")
    if body["kind"] == names.KIND:
        remedy = f"`pytorchjob delete {name}{here()}` deletes it, or choose another name"
    else:
        remedy = "its content differs: `kubectl apply -f FILE` changes it"
    return AlreadyExists(error.message, remedy, error.existing)


def _contains(stored: Any, wanted: Any) -> bool:
    """Whether a stored object has all that the file has; the server adds fields of its own."""
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(_contains(stored.get(key), value) for key, value in wanted.items())
    return bool(stored == wanted)


def _print(objects: Sequence[Object], output: str | None, dry_run: str) -> None:
    if output:
        say(plain.objects(objects, output, single=len(objects) == 1))
        return
    for body in objects:
        say(f"{plain.reference(body)} {_DONE[dry_run]}")


def _after(cluster: Cluster, jobs: Sequence[Object], watch: bool, timeout: float | None) -> None:
    """Follow the jobs, or name what a person probably wants next."""
    by_space: dict[str, list[str]] = {}
    for job in jobs:
        by_space.setdefault(job["metadata"].get("namespace") or cluster.namespace, []).append(job["metadata"]["name"])
    space, (first, *_) = next(iter(by_space.items()))
    target = first, space if space != cluster.namespace or _namespace_given() else ""
    status = advice.show_status(*target)
    if not watch:
        suggest(f"{status}; {advice.follow_output(*target)}")
        return
    over = f"after {timeout:g} s {', '.join(names_of(jobs))} still runs" if timeout else ""
    with deadline(timeout, over, f"the job continues: {status}"):
        sys.exit(max(_follow(cluster, space, found) for space, found in by_space.items()))


def _follow(cluster: Cluster, namespace: str, jobs: Sequence[str]) -> int:
    cluster.namespace = namespace
    return follow(cluster, jobs)
