"""An HTTP server that gives a job, its pods, watches and logs as an API server does, and breaks connections.

Its logs have timestamps to the nanosecond, several lines with the same one, and `sinceTime` in whole seconds. Each
stream of a log may be cut after any byte: by closing the connection, or in good order, as if the node were lost.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Condition, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pytorchjob.logs.lines import NANOSECONDS, from_moment
from pytorchjob_operator import names

START = from_moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
NAMESPACE = "team"
_JOBS = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CALM_REQUESTS = 4
"""Requests after a silent cut that the server does not cut silently."""

Object = dict[str, Any]


class _Server(ThreadingHTTPServer):
    request_queue_size = 512


class Lost(Exception):  # noqa: N818 -- nothing went wrong
    """The connection is cut here."""


@dataclass
class ContainerLog:
    """The log of one container of one pod."""

    lines: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_closed: bool = False


@dataclass
class PodLogs:
    """The current and the previous container of a pod."""

    current: ContainerLog = field(default_factory=ContainerLog)
    previous: ContainerLog | None = None
    calm: int = 0
    cuts: int = 0


class LogServer:
    """The state of the API server. Each change wakes all streams."""

    def __init__(self, seed: int, cuts: int = 6) -> None:
        self.requests = 0
        self.refused = 0
        self.is_down = False
        self._random, self._cuts = Random(seed), cuts
        self._changed = Condition()
        self._version = 1
        self._objects: dict[str, dict[str, Object]] = {_JOBS: {}, _PODS: {}}
        self._history: list[tuple[int, str, str, Object]] = []
        self._logs: dict[str, PodLogs] = {}
        self._now = START
        self._generation = 0
        self._is_over = False

    # What a test changes.

    def put_job(self, body: Object) -> None:
        self._put(_JOBS, body)

    def put_pod(self, body: Object) -> None:
        self._put(_PODS, body)

    def remove_pod(self, name: str) -> None:
        with self._changed:
            self._logs.pop(name).current.is_closed = True
            self._record(_PODS, "DELETED", self._objects[_PODS].pop(name))

    def print(self, pod: str, lines: list[str]) -> None:
        """Append lines to the log of a pod's container."""
        with self._changed:
            log = self._logs.setdefault(pod, PodLogs()).current
            for line in lines:
                self._now += self._random.choice([0, 1, 1000, NANOSECONDS // 50])
                log.times.append(self._now)
                log.lines.append(line.encode())
            self._changed.notify_all()

    def restart(self, pod: str) -> None:
        """End the container's log and begin a new container."""
        with self._changed:
            logs = self._logs[pod]
            logs.current.is_closed = True
            logs.previous, logs.current = logs.current, ContainerLog()
            self._now += 1
            self._changed.notify_all()

    def end(self, pod: str) -> None:
        """End the container without a restart."""
        with self._changed:
            self._logs.setdefault(pod, PodLogs()).current.is_closed = True
            self._changed.notify_all()

    def cut_all(self) -> None:
        """Cut every stream that is open."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    @contextmanager
    def running(self, folder: Path) -> Iterator[Path]:
        """Serve, and yield the path of a kubeconfig for this server."""
        server = _Server(("127.0.0.1", 0), self._handler())
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        config = folder / "kubeconfig"
        url = f"http://127.0.0.1:{server.server_address[1]}"
        config.write_text(json.dumps(_kubeconfig(url)))
        try:
            yield config
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            server.shutdown()
            server.server_close()
            thread.join()

    # How it answers.

    def _put(self, place: str, body: Object) -> None:
        with self._changed:
            name = body["metadata"]["name"]
            kind = "MODIFIED" if name in self._objects[place] else "ADDED"
            meta = {"uid": f"uid-{name}", **body["metadata"], "resourceVersion": str(self._version + 1)}
            body = {**body, "metadata": meta}
            self._objects[place][name] = body
            if place == _PODS:
                self._logs.setdefault(name, PodLogs())
            self._record(place, kind, body)

    def _record(self, place: str, kind: str, body: Object) -> None:
        self._version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        self._history.append((self._version, place, kind, body))
        self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                with suppress(ConnectionError, Lost):
                    server._answer(self)
                    return
                self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self._changed:
            self.requests += 1
            if self.is_down:
                self.refused += 1
                raise Lost
        if url.path in self._objects:
            answer = self._watch if query.get("watch") else self._list
            answer(handler, url.path, query)
        elif url.path.endswith("/log"):
            self._log(handler, url.path.removeprefix(f"{_PODS}/").removesuffix("/log"), query)
        else:
            place, _, name = url.path.rpartition("/")
            body = self._objects.get(place, {}).get(name)
            _send(handler, 200 if body else 404, body or _status(404, f"{name} not found"))

    def _list(self, handler: BaseHTTPRequestHandler, place: str, query: dict[str, str]) -> None:
        with self._changed:
            items, version = list(self._objects[place].values()), str(self._version)
        kind = "PodList" if place == _PODS else f"{names.KIND}List"
        _send(handler, 200, {"kind": kind, "metadata": {"resourceVersion": version}, "items": items})

    def _watch(self, handler: BaseHTTPRequestHandler, place: str, query: dict[str, str]) -> None:
        version = int(query["resourceVersion"])
        write = _stream(handler)
        for number, where, kind, body in self._events(version):
            if where == place and number > version:
                write(json.dumps({"type": kind, "object": body}).encode() + b"\n")

    def _events(self, version: int) -> Iterator[tuple[int, str, str, Object]]:
        position, generation = 0, self._generation
        while True:
            with self._changed:
                self._wait(generation, lambda seen=position: len(self._history) > seen)  # type: ignore[misc]
                found = self._history[position:]
                position = len(self._history)
            yield from found

    def _wait(self, generation: int, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds. Raise Lost if the connection is cut first."""
        self._changed.wait_for(lambda: self._is_over or self._generation != generation or holds())
        if self._is_over or self._generation != generation:
            raise Lost

    def _log(self, handler: BaseHTTPRequestHandler, pod: str, query: dict[str, str]) -> None:
        with self._changed:
            logs = self._logs.get(pod)
            log = logs and (logs.previous if query.get("previous") else logs.current)
            left, is_silent = self._plan_cut(logs) if logs else (0, False)
        if log is None:
            what = "previous terminated container not found" if logs else f"pods {pod} not found"
            code = 400 if logs else 404
            return _send(handler, code, _status(code, what))
        write = _stream(handler)
        for line in self._lines(log, query):
            if len(line) > left:
                if left:
                    write(line[:left])
                if not is_silent:
                    raise Lost
                break
            left -= len(line)
            write(line)
        write(b"")
        return None

    def _plan_cut(self, logs: PodLogs) -> tuple[int, bool]:
        """Return the number of bytes before the cut of this stream, and whether the cut is silent."""
        if logs.cuts >= self._cuts or self._random.random() < 0.5:
            logs.calm = max(0, logs.calm - 1)
            return 1 << 60, False
        logs.cuts += 1
        is_silent = not logs.calm and self._random.random() < 0.5
        logs.calm = _CALM_REQUESTS if is_silent else max(0, logs.calm - 1)
        return self._random.randint(0, 4000), is_silent

    def _lines(self, log: ContainerLog, query: dict[str, str]) -> Iterator[bytes]:
        since = from_moment(datetime.fromisoformat(query["sinceTime"])) if "sinceTime" in query else 0
        assert since % NANOSECONDS == 0
        position, generation = 0, self._generation
        follows = query.get("follow") == "true"
        while True:
            with self._changed:
                self._wait(generation, lambda seen=position: not follows or log.is_closed or len(log.lines) > seen)  # type: ignore[misc]
                found = list(zip(log.times[position:], log.lines[position:], strict=True))
                position += len(found)
                is_over = not follows or log.is_closed
            yield from (_stamped(at, line) for at, line in found if at >= since)
            if is_over:
                return


def _stamped(at: int, line: bytes) -> bytes:
    second, rest = divmod(at, NANOSECONDS)
    stamp = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z "
    return stamp.encode() + line + b"\n"


def _stream(handler: BaseHTTPRequestHandler) -> Callable[[bytes], None]:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()

    def write(data: bytes) -> None:
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    return write


def _send(handler: BaseHTTPRequestHandler, code: int, body: Object) -> None:
    data = json.dumps(body).encode()
    handler.send_response(code)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _status(code: int, message: str) -> Object:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


def _kubeconfig(url: str) -> Object:
    return {
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "t"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE}}],
        "current-context": "test",
    }
