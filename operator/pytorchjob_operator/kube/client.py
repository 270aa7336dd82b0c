"""A thin API client over dicts: each method sends one request and retries nothing.

The only exception is a 401: it repeats the request once with a newer token. Every failure is raised as an `ApiError`.
Everything that the server sends is read with a size limit. A client with a write fence sends no write after it fell.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp

from pytorchjob_operator.errors import ApiError, OperatorError, Unavailable, from_response
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.fence import Fence
from pytorchjob_operator.kube.fenced_connector import FencedConnector
from pytorchjob_operator.kube.resource import Resource

Object = dict[str, Any]
OnRequest = Callable[[str, str, int, float], None]
"""Called after each request: verb, plural, HTTP status (0: no response), seconds."""

_KEEPALIVE = 90.0
_MAX_REPLY = 64 * 1024 * 1024
_MAX_EVENT = 16 * 1024 * 1024
_MAX_ERROR = 64 * 1024
_MERGE_PATCH = "application/merge-patch+json"
_SILENCE = 75.0


class Page(NamedTuple):
    """One page of a list; all pages of a list show the state at the same `resource_version`."""

    items: Sequence[Object]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What to list and watch."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None

    def query(self) -> dict[str, str]:
        """The query parameters of this scope."""
        return {"labelSelector": self.label_selector} if self.label_selector else {}


@dataclass(frozen=True, slots=True)
class _Call:
    """One request: its HTTP part, and the verb by which the API conventions and the metrics name it."""

    verb: str
    method: str
    resource: Resource
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    accept: str = "application/json"


class ApiClient:
    """Requests to one API server over kept-alive connections; use it as an async context manager."""

    def __init__(
        self,
        connection: ApiEndpoint,
        user_agent: str,
        fence: Fence | None = None,
        request_timeout: float = 30.0,
        on_request: OnRequest | None = None,
    ) -> None:
        """With a `fence`, no write leaves or is worked on after it has fallen; without one, all writes leave."""
        self._connection = connection
        self._user_agent = user_agent
        self._fence = fence
        self._timeout = aiohttp.ClientTimeout(total=request_timeout)
        self._connect_timeout = request_timeout
        self._on_request = on_request
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Create the session; connections are opened when a request needs one."""
        secure = self._connection.server.startswith("https:")
        tls = await asyncio.to_thread(self._connection.ssl_context) if secure else True
        # HTTP/1.1 needs one connection per request in flight. Callers limit their writes; watches must never wait.
        connector = self._connector(limit=0, keepalive_timeout=_KEEPALIVE, ssl=tls)
        headers = {"User-Agent": self._user_agent}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    def _connector(self, **options: Any) -> aiohttp.TCPConnector:
        if self._fence is None:
            return aiohttp.TCPConnector(**options)
        connector = FencedConnector(self._fence.remaining, **options)
        self._fence.on_fall(connector.cut)
        return connector

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        if self._session:
            await self._session.close()
            self._session = None

    def may_write(self) -> bool:
        """False while the write fence is closed; the fence is checked again when a write leaves."""
        return self._fence is None or self._fence.remaining() > 0.0

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """Read the current state of one object from etcd, not from the API server's cache."""
        return await self._send(_Call("get", "GET", resource, resource.path(namespace, name)))

    async def get_path(self, path: str) -> Object:
        """Read a document outside the API's resources: the public keys of service account tokens, for example."""
        what = Resource("", "", path.rpartition("/")[2])
        # The keys are of type application/jwk-set+json: asked for application/json, the server answers 406.
        return await self._send(_Call("get", "GET", what, path, accept="*/*"))

    async def list(self, scope: Scope, limit: int = 500) -> AsyncIterator[Page]:
        """Read a collection in pages, all of them from the same moment."""
        path, more = scope.resource.path(scope.namespace), ""
        while True:
            query = {**scope.query(), "limit": str(limit), **({"continue": more} if more else {})}
            body = await self._send(_Call("list", "GET", scope.resource, path, query=query))
            meta = body.get("metadata") or {}
            yield Page(body.get("items") or (), str(meta.get("resourceVersion", "")))
            more = meta.get("continue") or ""
            if not more:
                return

    async def create(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        """Create one object and return it as the server stored it."""
        return await self._send(_Call("create", "POST", resource, resource.path(namespace), body))

    async def update(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        """Replace an object; the resourceVersion in `body` is the precondition."""
        path = resource.path(namespace, body["metadata"]["name"])
        return await self._send(_Call("update", "PUT", resource, path, body))

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Object) -> Object:
        """Merge `body` into an object; a uid or resourceVersion in its metadata is a precondition."""
        path = resource.path(namespace, name)
        return await self._send(_Call("patch", "PATCH", resource, path, body, content_type=_MERGE_PATCH))

    async def patch_status(self, resource: Resource, namespace: str | None, name: str, body: Object) -> Object:
        """Merge `body` into the status subresource; a uid or resourceVersion in its metadata is a precondition."""
        path = resource.path(namespace, name, "status")
        return await self._send(_Call("patch", "PATCH", resource, path, body, content_type=_MERGE_PATCH))

    async def update_status(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        """Replace an object's status; the resourceVersion in `body` is the precondition."""
        path = resource.path(namespace, body["metadata"]["name"], "status")
        return await self._send(_Call("update", "PUT", resource, path, body))

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, uid: str, grace_seconds: int | None = None
    ) -> Object:
        """Delete the object that has this uid; another object of the same name is left alone (Conflict)."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._send(_Call("delete", "DELETE", resource, resource.path(namespace, name), body))

    @asynccontextmanager
    async def watch(
        self, scope: Scope, resource_version: str, lasting: float, silence: float = _SILENCE
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """Open a watch and yield its events; raises ApiError on an ERROR event or after `silence` seconds without data.

        The context is entered once the stream is open. A `resource_version` that is too old raises Expired (HTTP 410).
        """
        query = {
            **scope.query(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(lasting))),
        }
        call = _Call("watch", "GET", scope.resource, scope.resource.path(scope.namespace), query=query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout, sock_read=silence)
        async with self._reply(call, timeout) as response:
            yield _events(response)

    async def _send(self, call: _Call) -> Object:
        async with self._reply(call, self._timeout) as response:
            return _decoded(await _read(response, _MAX_REPLY))

    @asynccontextmanager
    async def _reply(self, call: _Call, limits: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response with a success status; raise every other outcome as an ApiError."""
        loop = asyncio.get_running_loop()
        started, status = loop.time(), 0
        try:
            response = await self._authorized(call, limits)
            async with response:
                status = response.status
                if status >= 300:
                    raise await _error(response)
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise _no_answer(error) from error
        finally:
            if self._on_request:
                self._on_request(call.verb, call.resource.plural, status, loop.time() - started)

    async def _authorized(self, call: _Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        response = await self._request(call, limits, await self._token())
        if response.status != 401:
            return response
        response.release()
        return await self._request(call, limits, await self._token(fresh=True))

    async def _token(self, *, fresh: bool = False) -> str | None:
        try:
            return await self._connection.token(fresh=fresh)
        except OperatorError as error:
            raise Unavailable(0, "NoToken", str(error)) from error

    async def _request(self, call: _Call, limits: aiohttp.ClientTimeout, token: str | None) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open: use `async with`")
        headers = {"Accept": call.accept, **({"Authorization": f"Bearer {token}"} if token else {})}
        data = None
        if call.body is not None:
            data = json.dumps(call.body, separators=(",", ":")).encode()
            headers["Content-Type"] = call.content_type
        url = self._connection.server + call.path
        # An API server never redirects these requests; a followed redirect would send the token to another host.
        return await self._session.request(
            call.method, url, params=call.query, data=data, headers=headers, timeout=limits, allow_redirects=False
        )


async def _read(response: aiohttp.ClientResponse, bound: int) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > bound:
            raise Unavailable(0, "ReplyTooLarge", f"the server's reply is larger than {bound} bytes")
        parts.append(part)
    return b"".join(parts)


async def _error(response: aiohttp.ClientResponse) -> ApiError:
    raw = await _read(response, _MAX_ERROR)
    try:
        body: Any = json.loads(raw)
    except ValueError:
        body = raw.decode(errors="replace")
    return from_response(response.status, body, response.headers)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Object]:
    async for line in _lines(response):
        event = _decoded(line)
        if event.get("type") == "ERROR":
            status = event.get("object") or {}
            raise from_response(int(status.get("code") or 500), status)
        yield event


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for part in response.content.iter_any():
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _MAX_EVENT:
            raise Unavailable(0, "EventTooLarge", f"a watch event is larger than {_MAX_EVENT} bytes")
        for line in lines:
            if line:
                yield line


def _decoded(raw: bytes) -> Object:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise Unavailable(0, "BadReply", f"the server's response is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Unavailable(0, "BadReply", f"the server's response is not an object but {type(body).__name__}")
    return body


def _no_answer(error: BaseException) -> Unavailable:
    kind = "Timeout" if isinstance(error, TimeoutError) else "ConnectionFailed"
    return Unavailable(0, kind, str(error) or type(error).__name__)
