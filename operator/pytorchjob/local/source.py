"""The job of a local run: read from a file or standard input, with the overrides of the command line."""

import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import Any

from pytorchjob.local.cluster_only import RUN_POLICY
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.model.load import load_jobs, load_objects, validate_dict
from pytorchjob_operator.model.suggest import did_you_mean, nearest

STDIN = "-"
DEFAULT_NAMESPACE = "default"
_MAX_BYTES = 4 * 1024 * 1024
_SUFFIXES = (".yaml", ".yml", ".json")


def read_jobs(path: str) -> list[PyTorchJob]:
    """Read and check every job of a file; raises InvalidJob with all problems."""
    return load_jobs(_read(path), _source(path))


def read_objects(path: str) -> list[dict[str, Any]]:
    """Read every object of a file, of any kind, and check the jobs; raises InvalidJob with all problems."""
    return load_objects(_read(path), _source(path))


def _source(path: str) -> str:
    return "standard input" if path == STDIN else path


def choose(jobs: list[PyTorchJob], name: str | None, path: str) -> PyTorchJob:
    """Return the job with this name, or the only job of the file; raises InvalidJob if neither exists."""
    names = [job.metadata.name for job in jobs]
    known = ", ".join(names)
    found = [job for job in jobs if name in (None, job.metadata.name)]
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"contains no job named {name}; it contains: {known}{did_you_mean(name, names)}"
        raise InvalidJob([Problem("", f"{path}: {what}")])
    raise InvalidJob([Problem("", f"{path}: contains {len(jobs)} jobs: {known}; choose one with --job NAME")])


def override(
    job: PyTorchJob, namespace: str | None, workers: int | None, max_restarts: int | None = None
) -> PyTorchJob:
    """Set the job's namespace and, if given, workers and restarts, then check the job again; raises InvalidJob."""
    namespace = namespace or job.metadata.namespace or DEFAULT_NAMESPACE
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": namespace})})
    if max_restarts is not None:
        job = _checked(_with_restarts(job, max_restarts))
    if workers is None:
        return job
    specs = job.spec.pytorch_replica_specs
    if specs.worker is None:
        raise InvalidJob([Problem("spec.pytorchReplicaSpecs.Worker", "is missing: --replicas scales the workers")])
    worker = specs.worker.model_copy(update={"replicas": workers})
    spec = job.spec.model_copy(update={"pytorch_replica_specs": specs.model_copy(update={"worker": worker})})
    return _checked(job.model_copy(update={"spec": spec}))


def _with_restarts(job: PyTorchJob, limit: int) -> PyTorchJob:
    """Limit the restarts, in the field of v1 that does so for this job: the n-th of backoffLimit is one too many."""
    spec = job.spec
    if spec.elastic_policy is not None:
        elastic = spec.elastic_policy.model_copy(update={"max_restarts": limit})
        return job.model_copy(update={"spec": spec.model_copy(update={"elastic_policy": elastic})})
    policy = spec.run_policy.model_copy(update={"backoff_limit": limit + 1})
    return job.model_copy(update={"spec": spec.model_copy(update={"run_policy": policy})})


def as_stored(job: PyTorchJob) -> PyTorchJob:
    """The job as an API server would store it at its creation."""
    made = {"uid": f"local-{job.metadata.name}", "generation": 1, "resource_version": "1"}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update=made)})


def as_local(job: PyTorchJob) -> PyTorchJob:
    """The stored job without suspension, other managers and gangs, which need a cluster; its limits apply here too."""
    replaced = {name: field.instead for name, field in RUN_POLICY.items()}
    policy = job.spec.run_policy.model_copy(update=replaced)
    spec = job.spec.model_copy(update={"run_policy": policy, "managed_by": None})
    return as_stored(job.model_copy(update={"spec": spec}))


def _checked(job: PyTorchJob) -> PyTorchJob:
    plain = job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"status"})
    problems = validate_dict(plain)
    if problems:
        raise InvalidJob(problems)
    return job


def _read(path: str) -> str:
    if not path:
        raise InvalidJob([Problem("", "the name of the file is empty")])
    if path == STDIN and sys.stdin is None:  # `<&-`
        raise InvalidJob([Problem("", "standard input is closed: name the file of the job")])
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise InvalidJob([Problem("", f"{path}: there is no such file{_similar(path)}")]) from error
    except IsADirectoryError as error:
        raise InvalidJob([Problem("", f"{path}: is a folder: name the file of the job")]) from error
    except OSError as error:
        raise InvalidJob([Problem("", f"{path}: cannot be read: {error.strerror or error}")]) from error
    if len(data) > _MAX_BYTES:
        raise InvalidJob([Problem("", f"{path}: is larger than {_MAX_BYTES} bytes, the limit for a file of jobs")])
    return _decoded(data, _source(path))


def _decoded(data: bytes, source: str) -> str:
    """Return the text, in UTF-8 or, with its mark, in UTF-16, as PowerShell writes it; raises InvalidJob."""
    encoding = "utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in data or encoding != "utf-8-sig":
            raise InvalidJob([Problem("", f"{source}: is a binary file: name the YAML file of the job")]) from error
        before = data[: error.start].decode(errors="replace")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        words = f"the byte 0x{data[error.start]:02X} is not UTF-8: save the file as UTF-8"
        raise InvalidJob([Problem("", f"{source}:{line}:{column}: not valid YAML: {words}")]) from error


def _similar(path: str) -> str:
    """Suggest the YAML file of the same folder whose name is closest; empty if no name is close."""
    folder = Path(path).parent
    try:
        names = [entry.name for entry in folder.iterdir() if entry.suffix in _SUFFIXES]
    except OSError:
        return f", and no folder {folder}"
    found = nearest(Path(path).name, names)
    return f"; did you mean {folder / found}?" if found else ""
