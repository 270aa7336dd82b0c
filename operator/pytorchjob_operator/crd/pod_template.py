"""Cuts the API server's own PodTemplateSpec into a structural schema: run only to move to a newer Kubernetes.

    python -m pytorchjob_operator.crd.pod_template SWAGGER > operator/pytorchjob_operator/crd/pod_template.json

SWAGGER is what `kubectl get --raw /openapi/v2` prints. The rest of the package reads the result, never an API server.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytorchjob_operator.model.base import QUANTITY_PATTERN

Schema = dict[str, Any]

_CORE = "io.k8s.api.core.v1."
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_ROOT = f"{_CORE}PodTemplateSpec"
_MAX_DESCRIPTION = 120
_KEPT = ("type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
_MAX_NAME = 63
_MAX_CONTAINERS = 64
_MAX_PORTS = 1000
"""CEL's cost is estimated from these bounds; the server's own limits on a pod are tighter or far away."""

_QUANTITY: Schema = {"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN}
_STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Schema = {
    "type": "object",
    "properties": {
        "annotations": _STRINGS,
        # Go clients write `creationTimestamp: null`: it has no meaning and must not be an unknown field.
        "creationTimestamp": {"type": "string", "format": "date-time", "nullable": True},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": _STRINGS,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
_REPLACED: dict[str, Schema] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    f"{_META}ObjectMeta": _METADATA,
    f"{_META}Time": {"type": "string", "format": "date-time"},
    f"{_META}FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def load() -> Schema:
    """Return the checked-in schema."""
    schema: Schema = json.loads(files(__package__).joinpath("pod_template.json").read_text())
    return schema


def build(swagger: Schema) -> Schema:
    """Return the structural schema of a pod template, from an API server's swagger."""
    schema = _inline({"$ref": f"#/definitions/{_ROOT}"}, swagger["definitions"])
    schema["required"] = ["spec"]
    pod = schema["properties"]["spec"]["properties"]
    for kind in ("containers", "initContainers"):
        pod[kind]["maxItems"] = _MAX_CONTAINERS
        item = pod[kind]["items"]["properties"]
        item["name"]["maxLength"] = _MAX_NAME
        item["ports"]["maxItems"] = _MAX_PORTS
        item["ports"]["items"]["properties"]["containerPort"].update(minimum=1, maximum=65535)
    # No API server accepts such a container in a new pod, so its descriptions would only cost space.
    pod["ephemeralContainers"]["items"] = _without_descriptions(pod["ephemeralContainers"]["items"])
    return schema


def short(text: str) -> str:
    """Return the start of a description, cut at a whole word."""
    text = " ".join(text.split())
    if len(text) <= _MAX_DESCRIPTION:
        return text
    return text[: _MAX_DESCRIPTION - 3].rsplit(" ", 1)[0].rstrip(",;:. ") + "..."


def _inline(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return a schema node with its references resolved."""
    description = node.get("description", "")
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/definitions/")
        target = _REPLACED.get(name)
        out = json.loads(json.dumps(target)) if target else _inline(definitions[name], definitions)
        description = description or out.get("description", "")
    else:
        out = {key: node[key] for key in _KEPT if key in node}
        out.update(_children(node, definitions))
        out.setdefault("type", "object")
    if description:
        out["description"] = short(description)
    return out


def _without_descriptions(node: Any) -> Any:
    """Return the node without descriptions; a field named description stays, because its value is a map."""
    if isinstance(node, list):
        return [_without_descriptions(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_descriptions(value)
        for key, value in node.items()
        if key != "description" or isinstance(value, dict)
    }


def _children(node: Schema, definitions: dict[str, Schema]) -> Schema:
    out: Schema = {}
    if "properties" in node:
        out["properties"] = {key: _inline(value, definitions) for key, value in sorted(node["properties"].items())}
    for inner in ("items", "additionalProperties"):
        if inner in node:
            out[inner] = _inline(node[inner], definitions)
    for key in node.get("x-kubernetes-list-map-keys", ()):
        _default_map_key(out["items"], key)
    return out


def _default_map_key(item: Schema, key: str) -> None:
    """A key of a list-map must be required or have a default; these are the API's own."""
    if key not in item.get("required", ()):
        item["properties"][key]["default"] = {"protocol": "TCP"}.get(key, "")


if __name__ == "__main__":
    print(json.dumps(build(json.loads(Path(sys.argv[1]).read_text())), indent=1))
