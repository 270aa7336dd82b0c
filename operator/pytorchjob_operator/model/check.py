"""Checks a job's dict as the API server would, without one: the schema with unknown fields refused, then the rules.

`jsonschema` is loaded only when a job is checked, which the operator never does.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import Problem
from pytorchjob_operator.model.base import QUANTITY_PATTERN
from pytorchjob_operator.model.parse import field_path
from pytorchjob_operator.model.rules import RULES
from pytorchjob_operator.model.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_TEXT = {"type": "string"}
_METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        **dict.fromkeys(("annotations", "labels"), _STRINGS),
        **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"), _TEXT),
        **{key: {**_TEXT, "nullable": True} for key in ("creationTimestamp", "deletionTimestamp")},
        **{key: {"type": "integer"} for key in ("generation", "deletionGracePeriodSeconds")},
        "finalizers": {"type": "array", "items": _TEXT},
        **{key: {"type": "array"} for key in ("ownerReferences", "managedFields")},
    },
}
_MAX_SHOWN = 60
_ROLES = frozenset(kind.value for kind in names.ReplicaType)
_REPLICA_SPECS = "pytorchReplicaSpecs"
_DURATION = re.compile(r"([1-9][0-9]*) ?(s|m|min|h|d)")
_IN_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_OF_A_SHELL = re.compile(r"[&|;<>`$*]")
"""What only a shell understands: the text is no list of words."""
_WORDS = {None: "nothing", True: "true", False: "false"}
"""Values as YAML writes them."""
_UNKNOWN_FIELD = "unknown"
_ABSENT = ("is required", "must not be empty")
"""What follows from a misspelled field; the slip alone is reported."""
_BOOLEANS = ("true", "false")
_PAIR = re.compile(r"([A-Za-z]\w*):(\S.*)")
_FEW_HOMES = 2
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_KINDS = {
    "object": "a map",
    "array": "a list",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
}
_MESSAGES = {
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "minLength": "must be at least {limit} character",
    "maxLength": "must be at most {limit} characters",
    "maxItems": "must have at most {limit} items",
    "maxProperties": "must have at most {limit} keys",
    "pattern": "must match {limit}",
    "x-kubernetes-int-or-string": "must be an integer or a string",
}


def validate_dict(obj: object) -> list[Problem]:
    """Return all problems of a job by field; empty for a job that the API server would accept."""
    if not isinstance(obj, dict):
        return [Problem("", f"must be a {names.KIND} object, got {_shown(obj)}")]
    wanted = {"apiVersion": names.API_VERSION, "kind": names.KIND}
    foreign = [
        Problem(key, f"must be {value}, got {_shown(obj.get(key))}")
        for key, value in wanted.items()
        if obj.get(key) != value
    ]
    if foreign:
        return foreign
    obj = without_nulls(obj)
    errors = sorted(_validator().iter_errors(obj), key=lambda error: _place(obj, error.absolute_path))
    problems = [_problem(error) for error in errors]
    if not any(error.validator in ("type", "required", "x-kubernetes-int-or-string") for error in errors):
        problems += broken_rules(obj)
    meant = {
        field_path([*list(error.absolute_path)[:-1], error.validator_value]) for error in errors if _unknown(error)
    }
    meant |= {part for error in errors if _unknown(error) for part in _prefixes(_home(error))}
    return [problem for problem in problems if problem.field not in meant or not problem.message.startswith(_ABSENT)]


def _place(obj: object, path: Iterable[object]) -> list[int]:
    """Return where a field is in the text, for an order that is the same each time."""
    place = []
    for part in path:
        keys: list[object] = (
            list(obj) if isinstance(obj, dict) else list(range(len(obj))) if isinstance(obj, list) else []
        )
        place.append(keys.index(part) if part in keys else len(keys))
        obj = obj[part] if part in keys else None  # type: ignore[index]
    return place


def _home(error: "ValidationError") -> str:
    """Return where an unknown field belongs, if few other places have a field of its name; else empty."""
    path = list(error.absolute_path)
    role = next((str(part) for part in path if part in _ROLES), names.ReplicaType.WORKER.value)
    home = _homes().get(str(path[-1]), "").replace("*", role)
    return "" if home == field_path(path) else home


def _prefixes(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[: index + 1]) for index in range(len(parts))]


@cache
def _homes() -> dict[str, str]:
    """The path of each field whose name is the schema's own at one or two places: the outer one of these.

    A user's wrong indentation is mostly of one level.
    Of a pod template these are the pod's fields and a container's, which people write directly below the role.
    """
    schema: Any = _validator().schema
    found = dict[str, list[str]]()
    spec, roles = schema["properties"]["spec"], f"spec.{_REPLICA_SPECS}"
    role = spec["properties"][_REPLICA_SPECS]["additionalProperties"]
    pod = role["properties"]["template"]["properties"]["spec"]
    container = pod["properties"]["containers"]["items"]
    known = (
        ("spec", spec),
        ("spec.runPolicy", spec["properties"]["runPolicy"]),
        ("spec.elasticPolicy", spec["properties"]["elasticPolicy"]),
        (f"{roles}.*", role),
        (f"{roles}.*.template.spec", pod),
        (f"{roles}.*.template.spec.containers[0]", container),
    )
    for path, node in known:
        for key in node["properties"]:
            found.setdefault(key, []).append(f"{path}.{key}")
    for kind in _ROLES:
        found[kind] = [f"{roles}.{kind}"]
    return {key: paths[0] for key, paths in found.items() if len(paths) <= _FEW_HOMES}


def _unknown(error: "ValidationError") -> bool:
    return str(error.validator) == _UNKNOWN_FIELD


def without_nulls(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the job as the API server reads it: without fields that are null, except where the schema allows null."""
    pruned: dict[str, Any] = _pruned(obj, _validator().schema)
    return pruned


def _pruned(value: Any, schema: Any) -> Any:
    if isinstance(value, list) and "items" in schema:
        return [_pruned(item, schema["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    known, other = schema.get("properties", {}), schema.get("additionalProperties")
    inner = {key: known.get(key, other) for key in value}
    return {
        key: item if inner[key] is None else _pruned(item, inner[key])
        for key, item in value.items()
        if item is not None or inner[key] is None or inner[key].get("nullable")
    }


def broken_rules(obj: dict[str, Any]) -> list[Problem]:
    """Return the rules that a job breaks whose structure fits the schema."""
    return [
        Problem(field_path((*path, *filter(None, (rule.field,)))), rule.explain(node))
        for rule in RULES
        if rule.broken is not None
        for path, node in _nodes(obj, tuple(filter(None, rule.path.split("."))))
        if rule.broken(node)
    ]


def _nodes(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[object, ...], Any]]:
    """Yield every value that a rule's path matches, with its concrete path."""
    if not path:
        yield (), node
        return
    for key, value in _steps(node, path[0]):
        for rest, found in _nodes(value, path[1:]):
            yield (key, *rest), found


def _steps(node: Any, part: str) -> list[tuple[object, Any]]:
    if part == "[]":
        return list(enumerate(node))
    if part == "*":
        return list(node.items())
    return [(part, node[part])] if part in node else []


def _problem(error: "ValidationError") -> Problem:
    return Problem(field_path(error.absolute_path), _message(error))


def _message(error: "ValidationError") -> str:
    kind, limit = str(error.validator), error.validator_value
    if kind == _UNKNOWN_FIELD and (home := _home(error)):
        return f"unknown field here: it is {home}, so move it there"
    if kind == "x-kubernetes-int-or-string" and isinstance(error.instance, float):
        return _fraction(error)
    got = f", got {_shown(error.instance)}"
    if kind == "type":
        return f"must be {_KINDS.get(str(limit), limit)}{got}{_remedy(str(limit), error)}"
    if kind == "enum" and isinstance(limit, list):
        choices = ", ".join(str(choice) for choice in limit if choice)
        return f"must be one of {choices}{got}{did_you_mean(error.instance, limit)}"
    if limit == QUANTITY_PATTERN:
        return f"must be a quantity such as 2, 500m or 4Gi{got}"
    if kind in _MESSAGES:
        return _MESSAGES[kind].format(limit=limit) + got
    return error.message


def _remedy(wanted: str, error: "ValidationError") -> str:
    """Return how to write a value of the wanted type, if quotes or a colon make the difference; otherwise nothing."""
    value = error.instance
    if wanted == "string" and isinstance(value, int | float):
        return ": quote it"
    if wanted == "array" and isinstance(value, dict):
        return ": begin each of its entries with '- '"
    if not isinstance(value, str):
        return ""
    if wanted == "object" and isinstance(error.schema, dict) and value in error.schema.get("properties", {}):
        return f": a colon is missing after {value}"
    if wanted == "object" and (pair := _PAIR.fullmatch(value)):
        return f": a blank is missing after the colon, {pair[1]}: {pair[2]}"
    if wanted == "array":
        return f": write it as a list, {_as_list(value)}"
    if wanted == "integer" and (time := _DURATION.fullmatch(value)):
        return f": it counts seconds, write {int(time[1]) * _IN_SECONDS[time[2]]}"
    if (wanted == "integer" and _INTEGER.fullmatch(value)) or (wanted == "boolean" and value in _BOOLEANS):
        return f": write it without quotes, {value}"
    return ""


def _as_list(value: str) -> str:
    """Return a command line as a YAML list of its words, or of a shell that reads it."""
    try:
        words = ["sh", "-c", value] if _OF_A_SHELL.search(value) else shlex.split(value)
    except ValueError:
        words = ["sh", "-c", value]
    return json.dumps(words, ensure_ascii=False)


def _fraction(error: "ValidationError") -> str:
    name, value = str(error.absolute_path[-1]), error.instance
    remedy = "a container gets whole devices; write 1 or more" if "/" in name else f"quote it, '{value}'"
    return f"must be an integer or a string, got {value}: {remedy}"


def _shown(value: object) -> str:
    text = _WORDS[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


@cache
def _validator() -> "Validator":
    """The definition's schema as a JSON Schema validator that knows Kubernetes' own keywords."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    from pytorchjob_operator.crd.build import job_schema

    schema = job_schema()
    schema["properties"]["metadata"] = _METADATA
    schema["required"] = [*schema.get("required", ()), "metadata"]  # an API server demands a name before its schema
    keywords = {
        "type": _type,
        "pattern": _pattern,
        "properties": _properties,
        "required": _required,
        "x-kubernetes-int-or-string": _int_or_string,
        "x-kubernetes-list-map-keys": _list_map_keys,
    }
    made: Validator = extend(Draft202012Validator, keywords)(schema)  # type: ignore[no-untyped-call]
    return made


def _type(validator: "Validator", kind: str, value: Any, schema: dict[str, Any]) -> Iterator["ValidationError"]:
    from jsonschema import ValidationError

    fits = validator.is_type(value, kind) and not (kind == "integer" and isinstance(value, float))
    if not (fits or (value is None and schema.get("nullable"))):
        yield ValidationError("wrong type")


def _pattern(_: "Validator", pattern: str, value: object, __: dict[str, Any]) -> Iterator["ValidationError"]:
    """Match the whole text: Python's `$` alone would accept a line break at the end."""
    from jsonschema import ValidationError

    if isinstance(value, str) and re.fullmatch(pattern, value) is None:
        yield ValidationError("does not match")


def _properties(
    validator: "Validator", properties: dict[str, Any], value: object, schema: dict[str, Any]
) -> Iterator["ValidationError"]:
    """Check the known fields and refuse the others, unless the schema keeps them."""
    from jsonschema import ValidationError

    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in properties:
            yield from validator.descend(inner, properties[key], path=key)  # type: ignore[attr-defined]
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield ValidationError(
                f"unknown field{did_you_mean(key, properties)}",
                path=[key],
                validator=_UNKNOWN_FIELD,
                validator_value=nearest(key, properties),
            )


def _required(_: "Validator", keys: list[str], value: object, __: dict[str, Any]) -> Iterator["ValidationError"]:
    from jsonschema import ValidationError

    if isinstance(value, dict):
        yield from (ValidationError("is required", path=[key]) for key in keys if key not in value)


def _int_or_string(_: "Validator", __: bool, value: object, ___: dict[str, Any]) -> Iterator["ValidationError"]:
    from jsonschema import ValidationError

    if isinstance(value, bool) or not isinstance(value, int | str):
        yield ValidationError("wrong type")


def _list_map_keys(
    _: "Validator", keys: list[str], value: object, schema: dict[str, Any]
) -> Iterator["ValidationError"]:
    """The elements of a list-map differ in their keys."""
    from jsonschema import ValidationError

    seen = set()
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(item, dict):
            continue
        properties = schema["items"]["properties"]
        identity = tuple(str(item.get(key, properties[key].get("default"))) for key in keys)
        if identity in seen:
            yield ValidationError(f"{' and '.join(keys)} {', '.join(identity)} is given twice", path=[index])
        seen.add(identity)
