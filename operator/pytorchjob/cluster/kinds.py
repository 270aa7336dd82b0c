"""Where an API server keeps the objects of a kind: asked of the server, because a job's file may contain any kind."""

from difflib import get_close_matches
from typing import Any

from pytorchjob.cluster.api import Object
from pytorchjob.cluster.errors import Missing, NotInstalled, Rejected
from pytorchjob.cluster.http import Http, Request
from pytorchjob_operator import names


class Kinds:
    """The paths of kinds; each API version is read once."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._known: dict[str, list[dict[str, Any]]] = {}

    def path(self, body: Object, namespace: str) -> str:
        """Return the path of the list that an object belongs to; raises Rejected if the cluster does not know it."""
        version, kind = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) == (names.API_VERSION, names.KIND):
            return f"{base}/namespaces/{namespace}/{names.PLURAL}"
        resources = self._resources(base)
        found = next((entry for entry in resources if entry["kind"] == kind and "/" not in entry["name"]), None)
        if found is None:
            near = get_close_matches(kind, {str(entry["kind"]) for entry in resources}, n=1)
            remedy = f"did you mean {near[0]}?" if near else "correct apiVersion and kind, or install its definition"
            raise Rejected(f"the cluster does not know the kind {kind} of {version or 'an empty apiVersion'}", remedy)
        return f"{base}/namespaces/{namespace}/{found['name']}" if found["namespaced"] else f"{base}/{found['name']}"

    def _resources(self, base: str) -> list[dict[str, Any]]:
        if base not in self._known:
            try:
                self._known[base] = list(self._http.json(Request("GET", base)).get("resources") or ())
            except (Missing, NotInstalled):
                self._known[base] = []
        return self._known[base]
