"""From a stored object to a PyTorchJob, for the operator: cheap, and every problem names its field.

Unknown fields are ignored here. `model.check` is the strict check, for files.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model.job import PyTorchJob


def parse_job(obj: dict[str, Any]) -> PyTorchJob:
    """Return the job; raises InvalidJob for an object that is not a valid job, such as one stored before our schema."""
    try:
        return PyTorchJob.model_validate(obj)
    except ValidationError as error:
        problems = [Problem(field_path(found["loc"]), found["msg"]) for found in error.errors(include_url=False)]
        raise InvalidJob(problems) from error


def field_path(parts: Iterable[object]) -> str:
    """Return a path as the API server writes it: `spec.containers[0].image`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
