"""The options that all commands of a cluster share: kubectl's names, with kubectl's meanings.

    @click.command("events")
    @job_argument
    @with_cluster
    def events_command(cluster: Cluster, job: str) -> None: ...

`with_cluster` connects, hands over the cluster, and turns every `ClusterError` into a sentence and an exit status. A
test passes its own cluster: `CliRunner().invoke(main, ["events", "digits"], obj=lambda options: fake)`.
"""

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import ApiServerUnreachable, ClusterError, JobMissing, NoCluster, Rejected
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob.cluster.paths import check_name
from pytorchjob.commands.outcome import INTERRUPTED, fail_with
from pytorchjob_operator.terminal import say, visible_line

Connect = Callable[[ConnectOptions], Cluster]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_META = "pytorchjob.connect_options"
_COMPLETION_SECONDS = 3.0
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")


class Duration(click.ParamType):  # type: ignore[type-arg]  # click 8.2 knows no argument here
    """A time as kubectl takes it: 30, 30s, 1m30s, 2h. The value is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, int | float):
            return float(value)
        parts = _DURATION.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"{value!r} is not a duration, for example 30s, 5m or 1h30m", param, ctx)
        return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


DURATION = Duration()


class JobName(click.ParamType):  # type: ignore[type-arg]
    """A name that a job can have. `delete "$JOB"` with an unset variable stops here."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        try:
            return check_name(str(value), "job")
        except Rejected as error:
            self.fail(f"{error.message}: {error.remedy}", param, ctx)


JOB_NAME = JobName()
"""The type of arguments that name a job."""


def complete_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the jobs in the chosen namespace; nothing if the cluster does not answer soon."""
    try:
        jobs = _connect(ctx, replace(_options(ctx.params), request_seconds=_COMPLETION_SECONDS)).jobs()
    except (ClusterError, click.UsageError):
        return []
    names = (str(job["metadata"]["name"]) for job in jobs)
    return [CompletionItem(visible_line(name)) for name in names if name.startswith(incomplete)]


job_argument: Decorator = click.argument("job", metavar="JOB", type=JOB_NAME, shell_complete=complete_jobs)
"""One job, by its name."""
jobs_argument: Decorator = click.argument(
    "jobs", metavar="JOB...", type=JOB_NAME, nargs=-1, shell_complete=complete_jobs
)
"""Any number of jobs."""
all_namespaces_option: Decorator = click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
selector_option: Decorator = click.option(
    "-l", "--selector", default="", metavar="SELECTOR", help="Jobs with these labels only, for example team=vision."
)


def output_option(*formats: str) -> Decorator:
    """`-o` with kubectl's names of formats."""
    return click.option("-o", "--output", type=click.Choice(formats), help="How to print the answer.")


_CLUSTER_OPTIONS: tuple[Decorator, ...] = (
    click.option("-n", "--namespace", metavar="NAME", help="Namespace. Default: that of the kubeconfig's context."),
    click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context."),
    click.option(
        "--kubeconfig", metavar="FILE", help="Kubeconfig. Default: $KUBECONFIG, ~/.kube/config, or the pod's."
    ),
    click.option("--as", "as_user", metavar="USER", help="Act as this user, if your own rights allow it."),
    click.option("--as-group", "as_groups", metavar="GROUP", multiple=True, help="Act as a member of this group."),
    click.option(
        "--request-timeout",
        type=DURATION,
        metavar="TIME",
        help="Time for one request: 5s, 1m; 0: no limit. Default: 30s.",
    ),
)


local_option: Decorator = click.option(
    "--local", is_flag=True, help="Jobs of `pytorchjob run` on this machine, without a cluster."
)
"""For commands that only read."""


def with_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose a cluster; the command gets `cluster` in their place."""

    @wraps(command)
    def connected(connect: Callable[[], Cluster], **given: Any) -> None:
        command(cluster=connect(), **given)

    return with_connect(connected)


def with_connect(command: Callable[..., None]) -> Callable[..., None]:
    """Add the same options for a command that may not need a cluster: it gets `connect`, which gives one."""

    @wraps(command)
    def guarded(**given: Any) -> None:
        ctx = click.get_current_context()
        options = _options(given)
        ctx.meta[_META] = options
        rest = {name: value for name, value in given.items() if name not in _NAMES}
        guard(lambda: _or_here(given, lambda: command(connect=lambda: _connect(ctx, options), **rest)))

    with_options: Callable[..., None] = guarded
    for option in reversed(_CLUSTER_OPTIONS):
        with_options = option(with_options)
    return with_options


def _or_here(given: dict[str, Any], action: Callable[[], None]) -> None:
    """Run a command; if its job is not found in a cluster and is one of this machine, the error says so."""
    try:
        action()
    except (NoCluster, ApiServerUnreachable, JobMissing) as error:
        if given.get("local") is False and _is_here(given.get("job")):
            error.remedy = "it is a job of this machine: add --local"
        raise


def _is_here(job: str | None) -> bool:
    try:
        from pytorchjob.cluster.machine import MachineCluster
    except ImportError:  # a machine without file locks has no local runs
        return False
    return job in names_of(MachineCluster().jobs())


_NAMES = frozenset({"namespace", "context", "kubeconfig", "as_user", "as_groups", "request_timeout", "local"})


def guard(action: Callable[[], None]) -> None:
    """Run a command's work; a `ClusterError` becomes a sentence and an exit status, Ctrl-C becomes 130."""
    try:
        action()
    except ClusterError as error:
        fail_with(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def chosen_options() -> ConnectOptions:
    """Return what the person chose on this command line, for handing over to kubectl."""
    options: ConnectOptions = click.get_current_context().meta[_META]
    return options


def here() -> str:
    """Return ` -n NAME` or ` --local` for a command that a person types next, if this command was given it."""
    options = chosen_options()
    if options.local:
        return " --local"
    return f" -n {options.namespace}" if options.namespace else ""


def _options(given: dict[str, Any]) -> ConnectOptions:
    if given.get("as_groups") and not given.get("as_user"):
        raise click.UsageError("--as-group needs --as: a group alone cannot act")
    return ConnectOptions(
        kubeconfig=given.get("kubeconfig"),
        context=given.get("context"),
        namespace=given.get("namespace"),
        as_user=given.get("as_user"),
        as_groups=tuple(given.get("as_groups") or ()),
        request_seconds=given.get("request_timeout"),
        local=bool(given.get("local")),
    )


def _connect(ctx: click.Context, options: ConnectOptions) -> Cluster:
    if options.local:
        from pytorchjob.cluster.machine import MachineCluster

        return MachineCluster()
    if callable(given := ctx.find_root().obj):
        return cast("Connect", given)(options)
    from pytorchjob.cluster.connect import connect

    return connect(options, warn=lambda text: say(f"warning: {text}", err=True))


def names_of(objects: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of objects."""
    return [str(body["metadata"]["name"]) for body in objects]
