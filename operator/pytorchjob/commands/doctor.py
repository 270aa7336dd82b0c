"""`doctor [JOB]`: why a job does not train, or whether the cluster is ready for jobs."""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from pytorchjob import __version__
from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import NotInstalled
from pytorchjob.cluster.gather import gather_cluster, gather_job, missing_definition
from pytorchjob.commands.options import JOB_NAME, complete_jobs, output_option, with_cluster
from pytorchjob.commands.outcome import FAILED
from pytorchjob.screen import doctor
from pytorchjob.screen.colour import StyledLine, paint
from pytorchjob.view.cluster_view import ClusterCheck, ClusterView, make_cluster_view
from pytorchjob.view.job_view import finding_json, make_job_view
from pytorchjob.view.seen import Seen
from pytorchjob_operator.terminal import say


@click.command("doctor")
@click.argument("job", metavar="[JOB]", type=JOB_NAME, required=False, shell_complete=complete_jobs)
@output_option("json")
@with_cluster
def doctor_command(cluster: Cluster, job: str | None, output: str | None) -> None:
    """Name the cause of a job's problem, what proves it, and the remedy as commands.

    Without a job it examines the cluster: the operator, the definition, versions and nodes. `pytorchjob-agent doctor`
    examines the machine or the pod in which it runs. The exit status is 1 if something is wrong.
    """
    now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
    if job is None:
        _show_cluster(gather_cluster(cluster, now), output)
        return
    try:
        seen = gather_job(cluster, job, now, deep=True)
    except NotInstalled:
        _show_cluster(missing_definition(cluster, now), output)
        return
    view = make_job_view(seen)
    _print(doctor.job_lines(view), view.to_json(), output)
    sys.exit(FAILED if view.findings else 0)


def _show_cluster(seen: Seen, output: str | None) -> None:
    view = make_cluster_view(seen, __version__)
    _print(doctor.cluster_lines(view), _json(view), output)
    sys.exit(FAILED if view.findings or any(check.ok is False for check in view.checks) else 0)


def _json(view: ClusterView) -> dict[str, Any]:
    return {
        "checks": [_check_json(check) for check in view.checks],
        "findings": [finding_json(finding) for finding in view.findings],
    }


def _check_json(check: ClusterCheck) -> dict[str, Any]:
    step = check.step if check.ok is False else None
    following = {"text": step.text, "command": step.command} if step else None
    return {"name": check.name, "ok": check.ok, "text": check.text, "next": following}


def _print(lines: Iterable[StyledLine], data: dict[str, Any], output: str | None) -> None:
    say(json.dumps(data, indent=4, ensure_ascii=False) if output == "json" else paint(lines))
