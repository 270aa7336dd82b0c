"""From a file's text to checked jobs: what `plan`, `validate` and `run` read. No API server is asked."""

from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model.check import validate_dict, without_nulls
from pytorchjob_operator.model.job import PyTorchJob
from pytorchjob_operator.model.parse import parse_job
from pytorchjob_operator.model.text import documents

__all__ = ["load_jobs", "validate_dict"]


def load_jobs(text: str, source: str) -> list[PyTorchJob]:
    """Every job of a YAML text; raises InvalidJob with all problems of all of them."""
    objects = documents(text, source)
    if not objects:
        raise InvalidJob([Problem("", f"{source}: holds no object, a {names.KIND} was expected")])
    problems = [
        Problem(f"{_document(source, index, len(objects))}{problem.field}", problem.message)
        for index, obj in enumerate(objects)
        for problem in validate_dict(obj)
    ]
    if problems:
        raise InvalidJob(problems)
    return [parse_job(without_nulls(obj)) for obj in objects]


def _document(source: str, index: int, count: int) -> str:
    """Tells documents of one file apart; a file of one needs no such prefix."""
    return f"{source}, document {index + 1}: " if count > 1 else ""
