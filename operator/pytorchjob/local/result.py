"""The result of a run: the job with its final status as an object, a summary, and suggested next commands. Pure."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import yaml

from pytorchjob.local.screen import count_restarts
from pytorchjob.local.source import STDIN
from pytorchjob_operator.goodput import figures, sentence
from pytorchjob_operator.goodput.ledger import Ledger
from pytorchjob_operator.model import ConditionType, PyTorchJob
from pytorchjob_operator.plan import goodput
from pytorchjob_operator.terminal import visible_yaml

_NOT_REAL = ("uid", "resourceVersion")
"""Metadata that only an API server can set."""

FORMATS: dict[str, Callable[[Any], str]] = {
    "json": lambda obj: json.dumps(obj, indent=2) + "\n",
    "yaml": lambda obj: visible_yaml(lambda letters: str(yaml.safe_dump(obj, sort_keys=False, allow_unicode=letters))),
}


def at_rest(job: PyTorchJob) -> PyTorchJob:
    """Return the job after the end of all its processes: no pod is active any more."""
    shown = job.status.replica_statuses
    if shown is None:
        return job
    roles = {"master": shown.master, "worker": shown.worker}
    ended = {role: status and status.model_copy(update={"active": 0}) for role, status in roles.items()}
    status = job.status.model_copy(update={"replica_statuses": shown.model_copy(update=ended)})
    return job.model_copy(update={"status": status})


def final_object(given: PyTorchJob, ended: PyTorchJob) -> dict[str, Any]:
    """The job as `kubectl get -o yaml` would print it: the spec as the user wrote it, and the final status."""
    metadata = ended.metadata.to_api()
    spec = given.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {
        "apiVersion": given.api_version,
        "kind": given.kind,
        "metadata": {key: value for key, value in metadata.items() if value and key not in _NOT_REAL},
        "spec": spec,
        "status": ended.status.to_api(),
    }


def summary(ended: PyTorchJob, elapsed: str, restarts: int) -> str:
    """One line: the final state of the job, or that in which it was stopped, and the restarts if there were any."""
    conditions = ended.status.conditions
    state = conditions[-1].type if conditions else "not started"
    how = "" if ended.status.completion_time else "stopped while "
    return f"{ended.metadata.name}: {how}{state} after {elapsed}{f', {count_restarts(restarts)}' if restarts else ''}"


def time_spent(ended: PyTorchJob, ledger: Ledger | None, now: datetime) -> str:
    """One sentence: for which part of the time workers ran, and to what the rest was lost; empty if it is unknown.

    `ledger`: the coordinator's. It is newer than the status of a job that was stopped: a status waits for more steps.
    """
    status = ended.status
    if ledger is not None and status.completion_time is None:
        status = status.model_copy(update={"goodput": goodput.build(ledger, now)})
    found = figures.read(status.to_api(), now)
    return "" if found is None else sentence.describe(found)


def next_steps(path: str, ended: PyTorchJob) -> list[str]:
    """Suggested commands after success, but not for a job from standard input. The report of a failure has its own."""
    if path == STDIN or not ended.status.holds(ConditionType.SUCCEEDED):
        return []
    steps = [
        ("run the same job on a cluster", f"kubectl apply -f {path}"),
        ("print the Kubernetes objects of this job", f"pytorchjob plan {path}"),
        ("print the final status as JSON", f"pytorchjob run -f {path} --output json"),
    ]
    width = max(len(command) for _, command in steps)
    return ["Next:", *(f"  {command:<{width}}  # {what}" for what, command in steps)]
