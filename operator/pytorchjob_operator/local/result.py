"""What a run leaves: the job with its final status as an object, and what a person may want to do next. Pure."""

import json
from collections.abc import Callable
from typing import Any

import yaml

from pytorchjob_operator.local.source import STDIN
from pytorchjob_operator.model import PyTorchJob

_NOT_REAL = ("uid", "resourceVersion")
"""Metadata that only an API server can give."""

FORMATS: dict[str, Callable[[Any], str]] = {
    "json": lambda obj: json.dumps(obj, indent=2) + "\n",
    "yaml": lambda obj: str(yaml.safe_dump(obj, sort_keys=False, allow_unicode=True)),
}


def final_object(given: PyTorchJob, ended: PyTorchJob) -> dict[str, Any]:
    """The job as `kubectl get -o yaml` would show it: the spec as the user wrote it, the status that it reached."""
    metadata = ended.metadata.to_api()
    spec = given.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {
        "apiVersion": given.api_version,
        "kind": given.kind,
        "metadata": {key: value for key, value in metadata.items() if value and key not in _NOT_REAL},
        "spec": spec,
        "status": ended.status.to_api(),
    }


def summary(ended: PyTorchJob, elapsed: str) -> str:
    """One line: the state that the job ended in, or was left in."""
    conditions = ended.status.conditions
    state = conditions[-1].type if conditions else "not started"
    over = ended.status.completion_time is not None
    return (
        f"{ended.metadata.name}: {state} after {elapsed}" if over else f"{ended.metadata.name}: stopped while {state}"
    )


def next_steps(path: str, succeeded: bool) -> list[str]:
    """What to try next, as commands that work; a job from standard input cannot be had again."""
    if path == STDIN:
        return []
    steps = [
        ("the same job on a cluster", f"kubectl apply -f {path}"),
        ("what it is made of there", f"pytorchjob plan {path}"),
        ("the final status for a program", f"pytorchjob run -f {path} --output json"),
    ]
    if not succeeded:
        steps = [("check the file alone", f"pytorchjob validate {path}"), steps[1]]
    return ["Next:", *(f"  {command:<56} # {what}" for what, command in steps)]
