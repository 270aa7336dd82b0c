"""Keeps checkpoints and lines of train.py in a pod of its own, so that both outlive every pod that trains.

PUT /<job>/<step> keeps a checkpoint and says so in a line, GET /<job> answers the newest; lines come in as text over
TCP, and GET /lines?from=N answers what came behind byte N. It trusts everybody: it is for one namespace and one
measurement.

usage: python store.py CHECKPOINT_PORT LINE_PORT FOLDER
"""

import os
import re
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

MOST_CHECKPOINT, MOST_LINE, MOST_REPLY = 16 << 20, 4096, 1 << 20
MOST_LINES = 512 << 20
NAME = re.compile(r"/([a-z0-9-]{1,63})(?:/(\d{1,12}))?")
KEPT = 3


class Book:
    """All lines in the order in which they came."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._lock = threading.Lock()

    def add(self, line: bytes) -> None:
        """Append one line; beyond the limit it is lost."""
        with self._lock:
            if len(self._text) < MOST_LINES:
                self._text += line

    def read(self, start: int) -> bytes:
        """Return what is there from a byte on, not all at once."""
        with self._lock:
            return bytes(self._text[start : start + MOST_REPLY])


BOOK = Book()


class LineHandler(socketserver.StreamRequestHandler):
    """One process that trains."""

    def handle(self) -> None:
        """Take whole lines; what a killed process left half is left out."""
        while (line := self.rfile.readline(MOST_LINE)).endswith(b"\n"):
            BOOK.add(line)


class CheckpointHandler(BaseHTTPRequestHandler):
    """Checkpoints, and what the lines were."""

    folder = Path()

    def do_PUT(self) -> None:
        """Keep a checkpoint durably, in one move."""
        name, size = NAME.fullmatch(self.path), int(self.headers.get("Content-Length", MOST_CHECKPOINT + 1))
        if name is None or name[2] is None or size > MOST_CHECKPOINT:
            return self.send_error(400, "PUT /<job>/<step>, at most 16 MiB")
        content = self.rfile.read(size)
        if len(content) < size:
            return self.send_error(400, "the checkpoint is not whole")
        keep(self.folder / name[1], int(name[2]), content)
        # Said here too: who saves may be killed before it has said so.
        BOOK.add(f"train event=saved pod={name[1]}-store step={name[2]}\n".encode())
        self._answer(b"")

    def do_GET(self) -> None:
        """Answer the lines, or the newest checkpoint of a job."""
        asked = urlsplit(self.path)
        if asked.path == "/lines":
            return self._answer(BOOK.read(int(parse_qs(asked.query).get("from", ["0"])[0])))
        name = NAME.fullmatch(asked.path)
        steps = sorted(map(int, os.listdir(self.folder / name[1]))) if name and (self.folder / name[1]).exists() else []
        if not steps or name is None:
            return self.send_error(404, "no checkpoint of this job")
        self._answer((self.folder / name[1] / str(steps[-1])).read_bytes())

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


def keep(folder: Path, step: int, content: bytes) -> None:
    """Write a checkpoint, and remove all but the newest few."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder.parent / f".{folder.name}-{step}-{threading.get_ident()}"
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / str(step))
    for old in sorted(map(int, os.listdir(folder)))[:-KEPT]:
        (folder / str(old)).unlink(missing_ok=True)


def main(checkpoint_port: int, line_port: int, folder: Path) -> None:
    """Serve until killed."""
    folder.mkdir(parents=True, exist_ok=True)
    CheckpointHandler.folder = folder
    socketserver.ThreadingTCPServer.daemon_threads = True
    lines = socketserver.ThreadingTCPServer(("", line_port), LineHandler)
    threading.Thread(target=lines.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("", checkpoint_port), CheckpointHandler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
