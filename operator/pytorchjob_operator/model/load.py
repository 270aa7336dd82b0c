"""From a file's text to checked jobs, for `plan`, `validate` and `run`; needs no API server."""

from collections.abc import Iterator
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model.check import validate_dict, without_nulls
from pytorchjob_operator.model.job import PyTorchJob
from pytorchjob_operator.model.parse import parse_job
from pytorchjob_operator.model.text import documents

__all__ = ["load_jobs", "validate_dict"]


def load_jobs(text: str, source: str) -> list[PyTorchJob]:
    """Return every job of a YAML text; raises InvalidJob with all problems of all of them."""
    found = documents(text, source)
    objects = [item for document in found for item in _items(document)]
    if not objects:
        raise InvalidJob([Problem("", f"{source}: contains no object; expected a {names.KIND}")])
    problems = [
        Problem(f"{_document(source, index, objects)}{problem.field}", problem.message)
        for index, obj in enumerate(objects)
        for problem in validate_dict(obj)
    ]
    if problems:
        raise InvalidJob(problems)
    return [parse_job(without_nulls(obj)) for obj in objects]


def _items(document: Any) -> Iterator[Any]:
    """Yield the objects of a document: `kubectl get -o yaml` puts several into one List."""
    listed = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    yield from listed if isinstance(listed, list) else [document]


def _document(source: str, index: int, objects: list[Any]) -> str:
    """Return a prefix that identifies an object within a file; empty if the file has one object."""
    meta = objects[index].get("metadata") if isinstance(objects[index], dict) else None
    named = [meta[key] for key in ("namespace", "name") if meta.get(key)] if isinstance(meta, dict) else []
    name = f" ({'/'.join(map(str, named))})" if named else ""
    return f"{source}, document {index + 1}{name}: " if len(objects) > 1 else ""
