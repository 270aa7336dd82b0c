"""A save between two processes over loopback: the agents' requests with TLS, beside a plain socket.

Each process stands for a pod; a directory in memory stands for its emptyDir. The plain copy has one connection, reads
and writes pieces of the same size, and computes the same checksum: as a program without threads does.
"""

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.checksum import PIECE_BYTES, Checksum, of_pieces
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.saves import copies
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from tests.agent.saves.keys import members

SIZE = 1_000_000_000
"""Bytes of the save, in one file."""
_ROUND, _LIMIT = RoundId(1, 1), 10 * SIZE
_KEYS = members("secret", 2, _ROUND)


def fetched() -> float:
    """Return the seconds of a restore of the save from a peer."""
    return _timed(_serve_save, lambda port, folder: copies.get(
        HeldSaves(folder, "job", _LIMIT), Choice(_ROUND, 0, 1), 0, ("127.0.0.1", port, 0), _KEYS[1]
    ))  # fmt: skip


def sent() -> float:
    """Return the seconds of a copy to a peer, as fast as it goes."""

    def send(port: int, folder: Path) -> None:
        held = HeldSaves(folder, "job", _LIMIT)
        manifest = _hold(held)
        began.append(time.monotonic())
        copies.put(held, manifest, ("127.0.0.1", port, 0), _KEYS[1])

    began: list[float] = []
    ended = _timed(_serve_nothing, send, lambda: time.monotonic())
    return ended - began[0]


def plain() -> float:
    """Return the seconds of a plain copy with the same checksum."""

    def receive(port: int, folder: Path) -> None:
        buffer, checksums = memoryview(bytearray(PIECE_BYTES)), list[bytes]()
        with socket.create_connection(("127.0.0.1", port)) as sock, (folder / "file").open("wb", buffering=0) as file:
            while count := sock.recv_into(buffer, PIECE_BYTES, socket.MSG_WAITALL):
                checksums.append(sha256(buffer[:count]).digest())
                file.write(buffer[:count])
        assert (folder / "file").stat().st_size == SIZE
        of_pieces(checksums)

    return _timed(_serve_plainly, receive)


def _timed(
    serve: Callable[[Connection, str, RoundKeys], None],
    use: Callable[[int, Path], object],
    clock: Callable[[], float] | None = None,
) -> float:
    """Use what another process serves; return the seconds, or what the clock says afterwards."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        near, far = context.Pipe()
        for folder in ("theirs", "own"):
            (Path(name) / folder).mkdir()
        process = context.Process(target=serve, args=(far, f"{name}/theirs", _KEYS[0]))
        process.start()
        try:
            port = near.recv()
            began = time.monotonic()
            use(port, Path(name) / "own")
            return clock() if clock is not None else time.monotonic() - began
        finally:
            near.send(None)
            process.join()


def _serve_save(pipe: Connection, folder: str, keys: RoundKeys) -> None:
    held = HeldSaves(Path(folder), "job", _LIMIT)
    _hold(held)
    _serve(pipe, held, keys)


def _serve_nothing(pipe: Connection, folder: str, keys: RoundKeys) -> None:
    _serve(pipe, HeldSaves(Path(folder), "job", _LIMIT), keys)


def _serve(pipe: Connection, held: HeldSaves, keys: RoundKeys) -> None:
    server = SaveServer(held, "127.0.0.1")
    server.use(keys)
    pipe.send(server.port)
    pipe.recv()
    server.close()


def _serve_plainly(pipe: Connection, folder: str, _keys: RoundKeys) -> None:
    (Path(folder) / "file").write_bytes(os.urandom(SIZE))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        with closing(listener.accept()[0]) as sock, (Path(folder) / "file").open("rb", buffering=0) as file:
            while data := file.read(PIECE_BYTES):
                sock.sendall(data)
    pipe.recv()


def _hold(held: HeldSaves) -> Manifest:
    folder, checksum, content = held.new_folder(), Checksum(), os.urandom(SIZE)
    checksum.update(content)
    (folder / "0").write_bytes(content)
    file = HeldFile("step-5.pt", SIZE, (folder / "0").stat().st_mtime_ns, checksum.text())
    manifest = Manifest("job", SaveId(_ROUND, 0 if held.root.name == "theirs" else 1, 1), (file,))
    held.keep(manifest, folder)
    return manifest
