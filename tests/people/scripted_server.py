"""An HTTP server that gives the answers of a test and records the requests."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One answer: a dict becomes JSON, bytes are sent as they are, a list of bytes as chunks."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection in the middle of a stream."""
    silent: bool = False
    """Keep the connection open after a stream, and send nothing more."""


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: Any

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


class ScriptedServer:
    """Gives the answers in their order, and then repeats the last."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[Asked] = []
        self._answers = list(answers) or [Answer()]
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def next(self) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                data = self.rfile.read(length)
                server.asked.append(
                    Asked(self.command, self.path, list(self.headers.items()), json.loads(data) if data else None)
                )
                _answer(self, server.next())

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        return Handler

    @contextmanager
    def running(self) -> Iterator["ScriptedServer"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _answer(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    handler.send_response(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    if isinstance(answer.body, list):
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in answer.body:
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if answer.silent:
            handler.rfile.read(1)  # until the client hangs up
        if answer.cut or answer.silent:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")
        return
    data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def status(code: int, message: str, reason: str = "", **details: Any) -> Answer:
    """A refusal, as an API server writes it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason}
    return Answer({**body, **({"details": details} if details else {})}, code)


Serve = Callable[..., ScriptedServer]
