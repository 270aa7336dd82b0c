"""A watch that lasts: opened again after every end, without a change lost or reported twice."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pytorchjob.cluster.api import DELETED, Change, Object
from pytorchjob.cluster.errors import ApiServerUnreachable, ClusterError
from pytorchjob.cluster.failures import RequestFailure, explain
from pytorchjob.cluster.http import Http, Query, Request

_SERVER_SECONDS = 290
"""The server ends the watch after this time: a connection that broke in silence is noticed soon after."""
_GRACE_SECONDS = 20.0
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, *(10.0,) * 28)
"""Seconds before each attempt to open a lost watch: five minutes in all, an upgrade of an API server takes less."""
_EXPIRED = 410


class _Expired(Exception):  # noqa: N818 -- it reads better in `except`
    """The server no longer has the history since the last event: only a new list helps."""


@dataclass
class KnownObjects:
    """The objects of a watch as its reader knows them, by uid."""

    objects: dict[str, Object] = field(default_factory=dict)

    def listed(self, items: Iterable[Object]) -> Iterator[Change]:
        """Yield what a new list changes; nothing for an object that the reader knows in this version."""
        found = {_uid(item): item for item in items}
        for uid in [*self.objects]:
            if uid not in found:
                yield Change(DELETED, self.objects.pop(uid))
        for uid, item in found.items():
            before = self.objects.get(uid)
            if before is None or _version(before) != _version(item):
                self.objects[uid] = item
                yield Change("ADDED" if before is None else "MODIFIED", item)

    def changed(self, kind: str, item: Object) -> Iterator[Change]:
        """Yield one event of the watch."""
        if kind == DELETED:
            self.objects.pop(_uid(item), None)
        else:
            self.objects[_uid(item)] = item
        yield Change(kind, item)


@dataclass
class ObjectWatch:
    """A list and its changes."""

    http: Http
    path: str
    query: Query
    known: KnownObjects = field(default_factory=KnownObjects)
    _position: str | None = None
    """The version that the next watch continues from; None: list first."""

    def __iter__(self) -> Iterator[Change]:
        """Yield all objects, then every change, without an end; raises ClusterError if the server stays away."""
        yield from self._list()
        failures = 0
        while True:
            try:
                if self._position is None:
                    yield from self._list()
                for change in self._events():
                    failures = 0
                    yield change
                self.http.sleep(_PAUSES[0])  # the server has ended the watch
            except _Expired:
                self._position = None
            except ApiServerUnreachable:
                if failures == len(_PAUSES):
                    raise
                self.http.sleep(_PAUSES[failures])
                failures += 1

    def _list(self) -> Iterator[Change]:
        items, self._position = list_all(self.http, self.path, self.query)
        yield from self.known.listed(items)

    def _events(self) -> Iterator[Change]:
        query = {
            **self.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._position or "",
            "timeoutSeconds": str(_SERVER_SECONDS),
        }
        try:
            with self.http.lines(Request("GET", self.path, query), _SERVER_SECONDS + _GRACE_SECONDS) as lines:
                for line in lines:
                    yield from self._event(self.http.parsed(line))
        except ClusterError as error:
            if "Expired" in str(error) or "too old resource version" in str(error):
                raise _Expired from error
            raise

    def _event(self, event: dict[str, Any]) -> Iterator[Change]:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == _EXPIRED:
                raise _Expired
            raise explain(RequestFailure(int(item.get("code") or 500), json.dumps(item)))
        self._position = _version(item)
        if kind != "BOOKMARK":
            yield from self.known.changed(kind, item)


def list_all(http: Http, path: str, query: Query) -> tuple[list[Object], str]:
    """Return all objects of a list, read in pages, and the version that a watch continues from."""
    items: list[Object] = []
    page: Query = {**query, "limit": "500"}
    while True:
        body = http.json(Request("GET", path, page))
        kind = str(body.get("kind", "")).removesuffix("List")
        common = {"apiVersion": body.get("apiVersion"), "kind": kind}  # the items of a list do not repeat it
        items += [{**common, **item} for item in body.get("items") or ()]
        meta = body.get("metadata") or {}
        if not meta.get("continue"):
            return items, str(meta.get("resourceVersion", ""))
        page["continue"] = meta["continue"]


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])
