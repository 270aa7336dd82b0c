"""From pydantic's JSON schema to a structural schema, as the API server wants it.

References are inlined, `null` alternatives and titles dropped, `int | str` becomes int-or-string, and only the marked
defaults stay: a default that v1 applies in memory must not appear in a stored object.
"""

from typing import Any

from pydantic import BaseModel

from pytorchjob_operator.model.base import CRD_DEFAULT, POD_TEMPLATE

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
_COPIED = (
    *("type", "format", "description", "pattern", "required", "enum"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)


def structural(model: type[BaseModel], pod_template: Schema) -> Schema:
    """Return the structural schema of a model; `pod_template` replaces the field of a pod template."""
    source = model.model_json_schema(by_alias=True)
    return _convert(source, source.get("$defs", {}), pod_template)


def _convert(node: Schema, defs: dict[str, Schema], pod_template: Schema) -> Schema:
    node = _resolve(node, defs)
    if POD_TEMPLATE in node:
        return {**pod_template, "description": node["description"]}
    if "anyOf" in node:  # int | str; no other union is structural
        assert {choice["type"] for choice in node["anyOf"]} == {"integer", "string"}, node
        return {"x-kubernetes-int-or-string": True, **{key: node[key] for key in _COPIED if key in node}}
    out = {key: node[key] for key in _COPIED if key in node}
    if CRD_DEFAULT in node:
        out["default"] = node[CRD_DEFAULT]
    if "properties" in node:
        out["properties"] = {key: _convert(value, defs, pod_template) for key, value in node["properties"].items()}
    if "items" in node:
        out["items"] = _convert(node["items"], defs, pod_template)
    inner = node.get("additionalProperties")
    if inner is True:
        out[PRESERVE] = True
    elif inner:
        out["additionalProperties"] = _convert(inner, defs, pod_template)
    return out


def _resolve(node: Schema, defs: dict[str, Schema]) -> Schema:
    """Return the node with its reference and its `null` alternative merged; its own keywords win."""
    alternatives = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if len(alternatives) == 1:
        node = {**alternatives[0], **{key: value for key, value in node.items() if key != "anyOf"}}
    if "$ref" in node:
        target = defs[node["$ref"].removeprefix("#/$defs/")]
        node = {**_resolve(target, defs), **{key: value for key, value in node.items() if key != "$ref"}}
    return node
