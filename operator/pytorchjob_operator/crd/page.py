"""Writes the fields of a job and their rules into a page: `python -m pytorchjob_operator.crd.page FILE`.

The file keeps its text; what stands between the two marks is replaced. `make generate` calls it.
"""

from collections.abc import Iterator

from pytorchjob_operator.crd.build import job_schema
from pytorchjob_operator.crd.schema import Schema
from pytorchjob_operator.generated import MARKS, insert_between, rewrite
from pytorchjob_operator.model.rules import RULES, Rule

_HEAD = "| field | type | default | meaning |\n| --- | --- | --- | --- |"
_OTHERS = ("template",)
"""Fields whose own fields other documentation has: the pod template is Kubernetes' own."""


def reference() -> str:
    """Return tables of the fields of spec and status, and of the rules."""
    schema = job_schema()["properties"]
    parts = ["## Rules", "", "The API server refuses a job that breaks a rule, with this sentence.", ""]
    named = (_row(f"`{_place(rule)}`", rule.message) for rule in RULES)
    rules = ["| field | the field |", "| --- | --- |", *named]
    tables = [[f"## {name}", "", _HEAD, *_rows(schema[name], name)] for name in ("spec", "status")]
    return "\n".join([*tables[0], "", *tables[1], "", *parts, *rules])


def _place(rule: Rule) -> str:
    return ".".join(filter(None, (rule.path, rule.field))).replace(".[]", "[]")


def _rows(schema: Schema, path: str) -> Iterator[str]:
    """A row for each field below a schema, in the order of the model."""
    for name, field in _fields(schema):
        place = f"{path}.{name}"
        default = f"`{str(field['default']).lower()}`" if "default" in field else ""
        yield _row(f"`{place}`", _type(field), default, field.get("description", ""))
        if name.removeprefix("*.") not in _OTHERS:
            yield from _rows(field, place + ("[]" if "items" in field else ""))


def _fields(schema: Schema) -> Iterator[tuple[str, Schema]]:
    below = schema.get("items", schema)
    yield from below.get("properties", {}).items()
    values = below.get("additionalProperties")
    if isinstance(values, dict) and "properties" in values:
        yield from ((f"*.{name}", field) for name, field in values["properties"].items())


def _type(field: Schema) -> str:
    """The type of a field with its bounds or its values."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if value)
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {field['items'].get('type', 'any')}"
    if "minimum" in field and "maximum" in field and kind == "integer":
        return f"integer, {field['minimum']} to {field['maximum']}"
    return kind


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def insert(text: str) -> str:
    """Return the page with the present reference. Raises ValueError without the marks."""
    return insert_between(text, MARKS, reference())


if __name__ == "__main__":
    rewrite(insert)
