"""A stand-in for kube-state-metrics: the part of CustomResourceState that our configuration uses.

The program itself cannot be built here from a Go module, so tests read jobs with this stand-in. It follows the
program's documentation and has not been compared with the program.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

Object = dict[str, Any]
_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0, "unknown": 0.0}


class Sample(NamedTuple):
    """One line of the metrics."""

    name: str
    labels: dict[str, str]
    value: float

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(self.labels.items()))
        return f"{self.name}{{{labels}}} {self.value!r}"


def samples(config: Object, objects: Iterable[Object]) -> list[Sample]:
    """All samples of these objects, which are of the kind that the configuration names."""
    (resource,) = config["spec"]["resources"]
    return [sample for job in objects for metric in resource["metrics"] for sample in _family(resource, metric, job)]


def exposition(found: Iterable[Sample]) -> str:
    """The samples in the text format of Prometheus."""
    return "".join(f"{sample}\n" for sample in found)


def _family(resource: Object, metric: Object, job: Object) -> Iterator[Sample]:
    gvk = resource["groupVersionKind"]
    base = {f"customresource_{part}": gvk[part] for part in ("group", "version", "kind")}
    base |= _labels(resource["labelsFromPath"] | metric.get("labelsFromPath", {}), job)
    kind = metric["each"]["type"]
    each = metric["each"][kind[0].lower() + kind[1:]]
    make = {"Gauge": _gauges, "StateSet": _states}[kind]
    for labels, value in make(each, _get(job, each["path"])):
        yield Sample(f"{resource['metricNamePrefix']}_{metric['name']}", base | labels, value)


def _gauges(each: Object, found: Any) -> Iterator[tuple[dict[str, str], float]]:
    elements: list[tuple[dict[str, str], Any]] = [({}, found)]
    if isinstance(found, dict):
        key = each.get("labelFromKey")
        elements = [({key: name} if key else {}, value) for name, value in found.items()]
    elif isinstance(found, list):
        elements = [({}, value) for value in found]
    for labels, element in elements:
        value = _get(element, each.get("valueFrom", []))
        if value is None and not each.get("nilIsZero"):
            continue
        yield labels | _labels(each.get("labelsFromPath", {}), element), _number(value)


def _states(each: Object, found: Any) -> Iterator[tuple[dict[str, str], float]]:
    if found is not None:
        yield from (({each["labelName"]: state}, float(state == found)) for state in each["list"])


def _labels(paths: dict[str, list[str]], value: Any) -> dict[str, str]:
    found = {label: _get(value, path) for label, path in paths.items()}
    return {label: str(text) for label, text in found.items() if text is not None}


def _get(value: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _number(value: Any) -> float:
    if isinstance(value, str):
        word = _WORDS.get(value.lower())
        return datetime.fromisoformat(value).timestamp() if word is None else word
    return float(value or 0)
