"""Invalid jobs made from the schema: for each field of ours every wrong type, just beyond each bound, and huge."""

import copy
from collections.abc import Iterator
from typing import Any

from pytorchjob_operator.crd.build import job_schema
from tests.model.corpus import Bad

Schema = dict[str, Any]

_WRONG: dict[str, Any] = {
    "text": "x",
    "a number": 7,
    "a fraction": 1.5,
    "true": True,
    "a list": [],
    "a map": {},
}
_FITS = {
    "string": {"text"},
    "integer": {"a number"},
    "number": {"a number", "a fraction"},
    "boolean": {"true"},
    "array": {"a list"},
    "object": {"a map"},
}
_HUGE = {"2**31": 2**31, "2**63": 2**63, "1e100": 1e100}
_EXAMPLE: dict[str, Any] = {
    "rdzvConf": {"key": "a", "value": "1"},
    "metrics": {"type": "External", "external": {}},
    "logRules": {"name": "loss", "pattern": "x", "faultOnMatch": True},
    "preload": "numpy",
}
"""What an element of a list has to have before one of its fields is spoilt."""
_INT_OR_STRING = {"text", "a number"}


def generated() -> Iterator[Bad]:
    """Every such job; pod templates are left out, they are the API server's."""
    spec = job_schema()["properties"]["spec"]
    for path, field in _fields(spec, "spec"):
        yield from _wrong_types(path, field)
        yield from _beyond_bounds(path, field)
        if "properties" in field and "x-kubernetes-preserve-unknown-fields" not in field:
            yield _bad(f"{path} with a field that nobody knows", f"{path}.tomorrow", 1, only_strict=True)


def _fields(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Each field of ours with a dotted path that leads to it in a job."""
    yield path, node
    for key, inner in node.get("properties", {}).items():
        if key != "template":
            yield from _fields(inner, f"{path}.{key}")
    if "items" in node:
        yield from _fields(node["items"], f"{path}.0")
    if "additionalProperties" in node:
        key = "Worker" if path.endswith("pytorchReplicaSpecs") else "cpu"
        yield from _fields(node["additionalProperties"], f"{path}.{key}")


def _wrong_types(path: str, field: Schema) -> Iterator[Bad]:
    fits = _INT_OR_STRING if field.get("x-kubernetes-int-or-string") else _FITS[field["type"]]
    for name, value in _WRONG.items():
        if name not in fits:
            yield _bad(f"{path} is {name}", path, value)


def _beyond_bounds(path: str, field: Schema) -> Iterator[Bad]:
    if "enum" in field:
        yield from (_bad(f"{path} is {wrong!r}", path, wrong) for wrong in _near(field["enum"]))
    if "minimum" in field:
        yield _bad(f"{path} is one too low", path, field["minimum"] - 1)
    if "maximum" in field:
        yield _bad(f"{path} is one too high", path, field["maximum"] + 1)
        yield from (_bad(f"{path} is {name}", path, value) for name, value in _HUGE.items() if value > field["maximum"])
    if "maxLength" in field:
        yield _bad(f"{path} is a character too long", path, "1" * (field["maxLength"] + 1))
    if "maxItems" in field:
        yield _bad(f"{path} has an item that is null", path, [None], named=f"{path}[0]")
        yield _bad(
            f"{path} has an item too many", path, [_example(path, item) for item in range(field["maxItems"] + 1)]
        )
    if "maxProperties" in field:
        yield _bad(f"{path} has a key too many", path, {f"k{item}": {} for item in range(field["maxProperties"] + 1)})


def _near(values: list[str]) -> list[str]:
    """Slips of the finger around a value that is allowed."""
    value = values[-1]
    return [value.swapcase(), f"{value} ", f"{value}\n", value[:-1], f"{value}\u200b", "\U0001f525"]


def _example(path: str, index: int) -> Any:
    made = _EXAMPLE[path.rpartition(".")[2]]
    named = next((key for key in ("key", "name") if key in made), None)
    return {**made, named: f"k{index}"} if named else made


def _bad(sentence: str, path: str, value: Any, named: str = "", only_strict: bool = False) -> Bad:
    """Bad, with whatever the way to the field needs."""
    changes: dict[str, Any] = {}
    parts = path.split(".")
    if "0" in parts:
        at = parts.index("0")
        name = parts[at - 1]
        changes[".".join(parts[:at])] = [copy.copy(_EXAMPLE[name])]
    changes[path] = value
    return Bad(
        sentence, changes, named or path.replace(".0", "[0]"), path.startswith("spec.elasticPolicy"), only_strict
    )
