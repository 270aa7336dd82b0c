"""From a file's text to checked jobs, for `plan`, `validate`, `run` and `submit`; needs no API server.

A file may contain other objects too, such as the ConfigMap that a job mounts. Only jobs are checked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model.check import validate_dict, without_nulls
from pytorchjob_operator.model.job import PyTorchJob
from pytorchjob_operator.model.parse import parse_job
from pytorchjob_operator.model.pod_faults import pod_problems
from pytorchjob_operator.model.text import TEMPLATE, documents, is_template

_OTHER_KINDS = {
    "TrainJob": ". A TrainJob is of Kubeflow Trainer v2, which has its own operator: `pytorchjob convert FILE` writes"
    f" the {names.KIND}, in which trainer.numNodes becomes Worker.replicas and numProcPerNode becomes nprocPerNode",
    "Job": f". A Job becomes a {names.KIND} with its template as that of the Worker, and completions as its replicas;"
    " `pytorchjob init` writes such a file",
}
"""What people bring instead of a job, and how it becomes one."""

__all__ = ["is_job", "load_jobs", "load_objects", "names_twice", "validate_dict"]


def load_jobs(text: str, source: str) -> list[PyTorchJob]:
    """Return every job of a YAML text; raises InvalidJob with all problems of all of them."""
    objects = load_objects(text, source)
    jobs = [parse_job(without_nulls(obj)) for obj in objects if is_job(obj)]
    if not jobs:
        others = ", ".join(f"{obj['kind']} {_name(obj)}" for obj in objects)
        hints = "".join(sorted({_OTHER_KINDS[obj["kind"]] for obj in objects if obj["kind"] in _OTHER_KINDS}))
        raise InvalidJob([Problem("", f"{source}: contains no {names.KIND}; it contains: {others}{hints}")])
    return jobs


def is_job(obj: object) -> bool:
    """Whether an object is a job, or was meant to be a job: its kind or its API group is a job's, or it has neither."""
    if not isinstance(obj, dict) or not isinstance(obj.get("kind"), str) or not isinstance(obj.get("apiVersion"), str):
        return True
    kind, version = str(obj["kind"]), str(obj["apiVersion"])
    return kind.lower() == names.KIND.lower() or version.partition("/")[0] == names.GROUP


def load_objects(text: str, source: str) -> list[dict[str, Any]]:
    """Return every object of a YAML text as it is written; raises InvalidJob with all problems of all jobs."""
    found = documents(text, source)
    objects = [item for document in found for item in _items(document)]
    if not objects:
        raise InvalidJob([Problem("", f"{source}: contains no object; expected a {names.KIND}")])
    problems = [
        _within(_document(source, index, objects), problem)
        for index, obj in enumerate(objects)
        for problem in (_job_problems(obj) if is_job(obj) else _problems(obj))
    ]
    if problems and is_template(text):
        problems.insert(0, Problem(source, TEMPLATE))
    if not problems and (twice := names_twice(objects)):
        problems = [Problem(source, f"contains {' and '.join(twice)} twice: rename or remove one of them")]
    if problems:
        raise InvalidJob(problems)
    return objects


def _job_problems(obj: Any) -> list[Problem]:
    return validate_dict(obj) or pod_problems(without_nulls(obj))


def names_twice(objects: Iterable[dict[str, Any]]) -> list[str]:
    """Return the jobs whose name an earlier job of these objects has: a cluster would refuse them."""
    jobs = Counter((obj["metadata"].get("namespace"), _name(obj)) for obj in objects if is_job(obj))
    return [f"the {names.KIND} {name}" for (_, name), number in jobs.items() if number > 1]


def _within(document: str, problem: Problem) -> Problem:
    """Return a problem with the document that has it, if the file has several."""
    if not document:
        return problem
    return problem._replace(field=f"{document}: {problem.field}" if problem.field else document)


def _problems(obj: dict[str, Any]) -> Iterator[Problem]:
    """Yield what every API server refuses in an object of another kind."""
    if not _name(obj):
        yield Problem("metadata.name", "is required")


def _name(obj: dict[str, Any]) -> str:
    meta = obj.get("metadata")
    return str(meta.get("name") or meta.get("generateName") or "") if isinstance(meta, dict) else ""


def _items(document: Any) -> Iterator[Any]:
    """Yield the objects of a document: `kubectl get -o yaml` puts several into one List."""
    listed = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    yield from listed if isinstance(listed, list) else [document]


def _document(source: str, index: int, objects: list[Any]) -> str:
    """Return a prefix that identifies an object within a file; empty if the file has one object."""
    meta = objects[index].get("metadata") if isinstance(objects[index], dict) else None
    named = [meta[key] for key in ("namespace", "name") if meta.get(key)] if isinstance(meta, dict) else []
    name = f" ({'/'.join(map(str, named))})" if named else ""
    return f"{source}, document {index + 1}{name}" if len(objects) > 1 else ""
