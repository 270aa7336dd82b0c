"""A small API server over real HTTP: objects, resourceVersions, watches, and every fault that a client must survive.

No admission, no server-side apply, no garbage collector. Faults are set from outside: `failing`, `hang`, `cut`,
`compact`, `end_watches`, `mute`.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Object = dict[str, Any]
_SERVERS_OWN = ("uid", "name", "namespace", "creationTimestamp")
"""Metadata that an update cannot leave out. It replaces all others, labels for instance."""


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def verb(self) -> str:
        if self.method == "GET" and self.query.get("watch"):
            return "watch"
        return {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[self.method]


@dataclass(frozen=True)
class Place:
    """What a path names: a collection, or an object in it."""

    collection: str
    namespace: str | None
    name: str | None

    @classmethod
    def of(cls, path: str) -> "Place":
        parts = path.strip("/").split("/")
        root, rest = (parts[:3], parts[3:]) if parts[0] == "apis" else (parts[:2], parts[2:])
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        return cls("/".join([*root, rest[0]]), namespace, rest[1] if len(rest) > 1 else None)

    def holds(self, obj: Object, selector: str) -> bool:
        labels = obj["metadata"].get("labels") or {}
        wanted = dict(term.split("=", 1) for term in selector.split(",")) if selector else {}
        in_namespace = self.namespace in (None, obj["metadata"].get("namespace"))
        return in_namespace and all(labels.get(key) == value for key, value in wanted.items())


@dataclass
class FakeApi:
    """The server's state, and the switches of its faults."""

    version: int = 100
    objects: dict[str, dict[tuple[str, str], Object]] = field(default_factory=dict)
    history: list[tuple[int, str, str, Object]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    floor: int = 0
    bookmark_seconds: float = 0.05
    failing: Callable[[Request], web.Response | None] = lambda request: None
    url: str = ""
    mute: bool = False
    """Watches stay open and say nothing."""
    expire_in_stream: bool = False
    """Say 410 as an event, after a 200."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _gate: asyncio.Event = field(default_factory=asyncio.Event)
    _generation: int = 0
    _server: TestServer | None = None

    # What tests do to it

    def put(self, collection: str, obj: Object) -> Object:
        """Create or replace an object, as if somebody else had."""
        known = self._all(collection).get(_key(obj))
        meta = {"uid": known["metadata"]["uid"] if known else f"uid-{self.version + 1}", **obj["metadata"]}
        return self._store(collection, "MODIFIED" if known else "ADDED", {**obj, "metadata": meta})

    def remove(self, collection: str, name: str, namespace: str = "default") -> Object:
        """Delete an object, as if somebody else had."""
        return self._store(collection, "DELETED", self._all(collection)[(namespace, name)])

    def compact(self) -> None:
        """Forget history: every watch that starts before now gets a 410."""
        self.floor = self.version

    def hang(self, hanging: bool = True) -> None:
        """Answer nothing any more, or answer again."""
        self._gate.clear() if hanging else self._gate.set()

    def end_watches(self) -> None:
        """End all watches in good order."""
        self._generation += 1
        self._tell()

    def cut(self) -> None:
        """Cut all connections, in the middle of whatever they carry."""
        server = self._server and self._server.runner and self._server.runner.server
        for connection in list(server.connections) if server else ():
            if connection.transport:
                connection.transport.abort()

    def count(self, verb: str) -> int:
        """How many requests of this kind came."""
        return sum(request.verb == verb for request in self.requests)

    # What it does

    async def handle(self, raw: web.Request) -> web.StreamResponse:
        text = await raw.text()
        body = json.loads(text) if text else None
        request = Request(raw.method, raw.path, dict(raw.query), dict(raw.headers), body)
        self.requests.append(request)
        await self._gate.wait()
        if (fault := self.failing(request)) is not None:
            return fault
        place = Place.of(request.path)
        if request.verb == "watch":
            return await self._watch(raw, request, place)
        answers = {
            "get": self._get,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }
        return answers[request.verb](request, place)

    def _get(self, request: Request, place: Place) -> web.Response:
        if place.name:
            known = self._all(place.collection).get((place.namespace or "", place.name))
            return web.json_response(known) if known else failure(404, "NotFound", f"{place.name} not found")
        selector = request.query.get("labelSelector", "")
        found = [stored for stored in self._all(place.collection).values() if place.holds(stored, selector)]
        limit = int(request.query.get("limit", "0")) or len(found) or 1
        start, _, at = request.query.get("continue", f"0:{self.version}").partition(":")
        end = int(start) + limit
        meta = {"resourceVersion": at, **({"continue": f"{end}:{at}"} if end < len(found) else {})}
        return web.json_response({"kind": "List", "metadata": meta, "items": found[int(start) : end]})

    def _create(self, request: Request, place: Place) -> web.Response:
        obj = copy.deepcopy(request.body)
        obj["metadata"].setdefault("namespace", place.namespace or "")
        if _key(obj) in self._all(place.collection):
            return failure(409, "AlreadyExists", f"{obj['metadata']['name']} already exists")
        obj["metadata"]["uid"] = f"uid-{self.version + 1}"
        return web.json_response(self._store(place.collection, "ADDED", obj), status=201)

    def _update(self, request: Request, place: Place) -> web.Response:
        return self._write(place, request.body.get("metadata") or {}, lambda known: request.body)

    def _patch(self, request: Request, place: Place) -> web.Response:
        return self._write(place, request.body.get("metadata") or {}, lambda known: _merged(known, request.body))

    def _write(self, place: Place, meta: Object, change: Callable[[Object], Object]) -> web.Response:
        known = self._all(place.collection).get((place.namespace or "", place.name or ""))
        if not known:
            return failure(404, "NotFound", f"{place.name} not found")
        for key in ("uid", "resourceVersion"):
            if meta.get(key, known["metadata"][key]) != known["metadata"][key]:
                return failure(409, "Conflict", f"the object has another {key}")
        obj = change(known)
        kept = {key: known["metadata"][key] for key in _SERVERS_OWN if key in known["metadata"]}
        obj = {**obj, "metadata": {**kept, **obj["metadata"]}}
        return web.json_response(self._store(place.collection, "MODIFIED", obj))

    def _delete(self, request: Request, place: Place) -> web.Response:
        known = self._all(place.collection).get((place.namespace or "", place.name or ""))
        if not known:
            return failure(404, "NotFound", f"{place.name} not found")
        wanted = ((request.body or {}).get("preconditions") or {}).get("uid", known["metadata"]["uid"])
        if wanted != known["metadata"]["uid"]:
            return failure(409, "Conflict", "the uid in the precondition is another")
        return web.json_response(self._store(place.collection, "DELETED", known))

    async def _watch(self, raw: web.Request, request: Request, place: Place) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        gone = _status(410, "Expired", "too old resource version")
        if since < self.floor and not self.expire_in_stream:
            return web.json_response(gone, status=410)
        response = web.StreamResponse()
        await response.prepare(raw)
        events = self._events(place, request.query.get("labelSelector", ""), since)
        try:
            if since < self.floor:
                await _say(response, "ERROR", gone)
                return response
            async for kind, obj in events:
                await _say(response, kind, obj)
        except ConnectionError:
            pass
        return response

    async def _events(self, place: Place, selector: str, since: int) -> AsyncIterator[tuple[str, Object]]:
        generation = self._generation
        while generation == self._generation:
            news, until = self._news, self.version
            for version, collection, kind, obj in list(self.history) if not self.mute else ():
                if version > since and collection == place.collection and place.holds(obj, selector):
                    yield kind, obj
            since = since if self.mute else max(since, until)
            try:
                await asyncio.wait_for(news.wait(), self.bookmark_seconds)
            except TimeoutError:
                if not self.mute and since <= self.version:  # as of a real server: none to a watch from the future
                    yield "BOOKMARK", {"metadata": {"resourceVersion": str(since)}}

    def _store(self, collection: str, kind: str, obj: Object) -> Object:
        self.version += 1
        obj = copy.deepcopy(obj)
        obj["metadata"]["resourceVersion"] = str(self.version)
        obj["metadata"].setdefault("namespace", "default")
        if kind == "DELETED":
            del self._all(collection)[_key(obj)]
        else:
            self._all(collection)[_key(obj)] = obj
        self.history.append((self.version, collection, kind, obj))
        self._tell()
        return obj

    def _all(self, collection: str) -> dict[tuple[str, str], Object]:
        return self.objects.setdefault(collection, {})

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


@asynccontextmanager
async def serving() -> AsyncIterator[FakeApi]:
    """Run one on a free port of this machine; `url` says where."""
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    server = TestServer(app, port=0)
    api._server = server
    api.hang(False)
    await server.start_server(shutdown_timeout=0.1)
    api.url = str(server.make_url("")).rstrip("/")
    try:
        yield api
    finally:
        api.end_watches()
        api.hang(False)
        await server.close()


def failure(status: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> web.Response:
    """A reply that carries a Status, as an API server's refusals do."""
    return web.json_response(_status(status, reason, message), status=status, headers=headers)


def _status(status: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}


def _key(obj: Object) -> tuple[str, str]:
    return (obj["metadata"].get("namespace", "default"), obj["metadata"]["name"])


def _merged(known: Object, patch: Object) -> Object:
    result = dict(known)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


async def _say(response: web.StreamResponse, kind: str, obj: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
