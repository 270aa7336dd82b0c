"""What pods use, next to what they asked for. Pure: pods and their metrics in, rows out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob_operator.names import LABEL_JOB_NAME


class Amounts(NamedTuple):
    """An amount of each resource; None: unknown, or without a limit."""

    cpu: float | None = None
    """Cores."""
    memory: float | None = None
    """Bytes."""
    gpu: float | None = None
    """Accelerators, of any vendor."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A pod, a container or a job."""

    name: str
    namespace: str
    used: Amounts
    requested: Amounts
    limit: Amounts
    job: str = ""
    node: str = ""
    container: str = ""
    pods: int = 1


def pod_usages(pods: Sequence[Object], metrics: Sequence[Object], *, containers: bool = False) -> tuple[Usage, ...]:
    """Return a row for each pod that has not ended, or for each of its containers."""
    measured = {_key(item): item for item in metrics}
    living = [pod for pod in pods if not reading.has_finished(pod)]
    return tuple(row for pod in living for row in _rows(pod, measured.get(_key(pod), {}), containers))


def total(name: str, rows: Sequence[Usage]) -> Usage:
    """Return the sum of rows; a value that one of them lacks is that of the others, a limit is then unknown."""
    return Usage(
        name,
        rows[0].namespace if rows else "",
        used=_sum(row.used for row in rows),
        requested=_sum(row.requested for row in rows),
        limit=_sum((row.limit for row in rows), strict=True),
        job=name,
        pods=len(rows),
    )


def by_job(rows: Iterable[Usage]) -> dict[tuple[str, str], list[Usage]]:
    """Return the rows of each job, by its namespace and name."""
    found: dict[tuple[str, str], list[Usage]] = {}
    for row in rows:
        found.setdefault((row.namespace, row.job), []).append(row)
    return found


def _rows(pod: Object, metrics: Object, containers: bool) -> Iterator[Usage]:
    used = {str(item.get("name")): _used(item) for item in reading.items(metrics, "containers")}
    rows = [_row(pod, spec, used.get(str(spec.get("name")), Amounts())) for spec in _running_specs(pod)]
    if containers:
        yield from rows
        return
    whole = total(reading.name_of(pod), rows)
    yield Usage(
        whole.name,
        _namespace(pod),
        _sum(used.values()),
        whole.requested,
        whole.limit,
        job=_job_of(pod),
        node=reading.node_of(pod),
    )


def _row(pod: Object, spec: Object, used: Amounts) -> Usage:
    limits = reading.part(spec, "resources", "limits")
    requests = {**limits, **reading.part(spec, "resources", "requests")}  # without a request, the limit is the request
    return Usage(
        reading.name_of(pod),
        _namespace(pod),
        used,
        _amounts(requests),
        _amounts(limits),
        job=_job_of(pod),
        node=reading.node_of(pod),
        container=str(spec.get("name") or ""),
    )


def _running_specs(pod: Object) -> list[Object]:
    """Return the containers that run for as long as the pod does."""
    sidecars = [item for item in reading.items(pod, "spec", "initContainers") if item.get("restartPolicy") == "Always"]
    return [*reading.items(pod, "spec", "containers"), *sidecars]


def _used(container: Object) -> Amounts:
    return _amounts(reading.part(container, "usage"))


def _amounts(quantities: Mapping[str, object]) -> Amounts:
    gpus = [reading.amount(value) for name, value in quantities.items() if _is_gpu(name)]
    cpu, memory = (
        reading.amount(quantities[name]) if quantities.get(name) not in (None, "") else None
        for name in ("cpu", "memory")
    )
    return Amounts(cpu, memory, sum(gpus) if gpus else None)


def _is_gpu(resource: str) -> bool:
    return resource.endswith(("/gpu", ".gpu")) or "/mig-" in resource or "gpu" in resource.rpartition("/")[2]


def _sum(amounts: Iterable[Amounts], *, strict: bool = False) -> Amounts:
    """Add amounts up; `strict`: the sum is unknown if one of CPU or memory is."""
    columns = list(zip(*amounts, strict=True)) or [(), (), ()]
    cpu, memory, gpu = ([value for value in column if value is not None] for column in columns)
    whole = len(columns[0])
    return Amounts(
        sum(cpu) if cpu and not (strict and len(cpu) < whole) else None,
        sum(memory) if memory and not (strict and len(memory) < whole) else None,
        sum(gpu) if gpu else None,
    )


def _key(obj: Object) -> tuple[str, str]:
    return _namespace(obj), reading.name_of(obj)


def _job_of(pod: Object) -> str:
    return str(reading.part(pod, "metadata", "labels").get(LABEL_JOB_NAME) or "")


def _namespace(obj: Object) -> str:
    return str(reading.part(obj, "metadata").get("namespace") or "")
