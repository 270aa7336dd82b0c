"""What kopf asks for beyond lists and watches: which resources there are. On top of the fake API server."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.fakes.apiserver import Request


def _resource(plural: str, kind: str, namespaced: bool) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    return {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": verbs}


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


# kopf waits for namespaces and definitions to be there, although its settings disable scanning.
_DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": [_resource("namespaces", "Namespace", False)]},
    "/apis": {"groups": [_group("kubeflow.org"), _group("apiextensions.k8s.io")]},
    "/apis/kubeflow.org/v1": {"resources": [_resource("pytorchjobs", "PyTorchJob", True)]},
    "/apis/apiextensions.k8s.io/v1": {
        "resources": [_resource("customresourcedefinitions", "CustomResourceDefinition", False)]
    },
}


def discovery(request: Request) -> web.Response | None:
    """Answers what is not about an object."""
    found = _DISCOVERY.get(request.path.rstrip("/"))
    return web.json_response(found) if found else None


def broken_watch(code: int) -> web.Response:
    """A watch that begins well and then reports a failure of the server."""
    status = {"kind": "Status", "status": "Failure", "code": code, "message": "etcd is away"}
    return web.Response(text=json.dumps({"type": "ERROR", "object": status}) + "\n")


def first(times: int, answer: Callable[[], web.Response]) -> Callable[[Request], web.Response | None]:
    """Discovery as ever; the first watches are answered so."""
    left = iter(range(times))

    def fault(request: Request) -> web.Response | None:
        if request.verb == "watch" and next(left, None) is not None:
            return answer()
        return discovery(request)

    return fault
