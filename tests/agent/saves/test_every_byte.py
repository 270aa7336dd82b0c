"""Saves and copies of saves that are cut after each byte: none of them is ever held, offered or loaded."""

import io
import json
import select
import socket
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.exchange.wire import PeerRefusedError
from pytorchjob_agent.saves import copies, directory, formats
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import Choice
from pytorchjob_agent.saves.recognition import Recognition, Scan
from pytorchjob_agent.saves.taking import Taking, Writer
from tests.agent.saves import test_recognition as simulated
from tests.agent.saves.keys import KEYS
from tests.waiting import until

PLAIN = replace(KEYS, certificate="")
"""The keys of a round without TLS, whose records would hide single bytes."""
CONTENT = {"step-5/a.pt": b"weights", "step-5/b.pt": b"moments"}
Copy = Callable[[HeldSaves, HeldSaves, tuple[str, int]], object]


@pytest.mark.parametrize("events", [True, False], ids=["with events", "scans alone"])
@pytest.mark.parametrize("way", simulated.WAYS)
def test_a_file_that_is_cut_after_any_byte_is_not_complete(
    way: str, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "PIECES", 40)
    disk = simulated.life(way)
    for cut in range(1, len(disk.states) + 1):
        for scans in ((), (cut - 1,), (cut - 2,), range(max(0, cut - 5), cut)):
            recognition, observer, at = Recognition(), simulated.Observer(disk, events=events), 0.0
            for moment in scans:
                at += 0.3
                recognition.follow(observer.scan(max(0, moment), at))
            for _ in range(2):
                at += 4.0
                found = recognition.follow(observer.killed(cut - 1, at))
                assert set(found.units) <= disk.states[cut - 1][1], (cut, scans)
            found = recognition.end(observer.killed(cut - 1, at), clean=False)
            assert set(found.units) <= disk.states[cut - 1][1], (cut, scans)


def archive() -> bytes:
    """What torch.save writes: an archive whose directory is at its end."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("archive/data.pkl", b"pickled")
        made.writestr("archive/data/0", bytes(64))
    return file.getvalue()


def safetensors() -> bytes:
    head = json.dumps({"weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(16)


@pytest.mark.parametrize(("name", "content"), [("a.pt", archive()), ("a.safetensors", safetensors())])
def test_a_file_of_a_known_format_is_whole_with_its_last_byte(name: str, content: bytes) -> None:
    found = [length for length in range(1, len(content) + 1) if _is_whole(name, content[:length])]
    assert found == [len(content)]


def _is_whole(name: str, content: bytes) -> bool:
    head, tail = content[: formats.HEAD_BYTES], content[-formats.TAIL_BYTES :]
    return formats.is_whole(name, len(content), head, tail)


def put(own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int]) -> None:
    """The owner sends its save."""
    manifest = own.newest(RoundId(1, 1), 0)
    assert manifest is not None
    copies.put(own, manifest, peer, PLAIN)


def get(own: HeldSaves, theirs: HeldSaves, peer: tuple[str, int]) -> None:
    """A new pod fetches the owner's save."""
    copies.get(theirs, Choice(RoundId(1, 1), 0, 1), 0, peer, PLAIN)


@pytest.mark.parametrize("copy", [put, get])
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_copy_that_is_cut_after_any_byte_is_not_held(tmp_path: Path, copy: Copy, side: str) -> None:
    """The wire breaks after a number of bytes of one side. Only the end of a `put` may be missing: it has its files."""
    own, theirs = HeldSaves(tmp_path / "own", "job", 10**6), HeldSaves(tmp_path / "theirs", "job", 10**6)
    hold(own)
    cut = 0
    while not copied(copy, own, theirs, (side, cut)):
        assert theirs.list() == () or copy is put, cut
        for manifest in theirs.list():
            found = theirs.part(Choice(RoundId(1, 1), 0, 1), 0)
            assert found is not None, manifest
            content = {file.path: theirs.read(found, place, 0, 100) for place, file in enumerate(found.files)}
            assert content == CONTENT, cut
        theirs.clear()
        cut += 1
    assert cut > 100
    assert len(theirs.list()) == 1


def hold(own: HeldSaves) -> None:
    """Hold the content as a save."""
    for path, content in CONTENT.items():
        (own.root / path).parent.mkdir(exist_ok=True)
        (own.root / path).write_bytes(content)
    recognition, files = Recognition(), tuple(directory.read(own.root))
    recognition.follow(Scan(files, 0.0))
    units = recognition.follow(Scan(files, 5.0)).units
    assert Taking(own, Writer("job", RoundId(1, 1), 0, 1, 1), {}).take(units) is not None


def copied(copy: Copy, own: HeldSaves, theirs: HeldSaves, cut: tuple[str, int]) -> bool:
    """Copy through a wire that breaks; return whether it did not."""
    server = SaveServer(theirs if copy is put else own, "127.0.0.1")
    server.use(PLAIN)
    with cutting(server.port, *cut) as port:
        try:
            copy(own, theirs, ("127.0.0.1", port))
            return True
        except (PeerRefusedError, ManifestError, OSError):
            return False
        finally:
            server.close()
            until(lambda: not [thread for thread in threading.enumerate() if thread.name == "checkpoints"], every=0.001)


@contextmanager
def cutting(server: int, side: str, most: int) -> Iterator[int]:
    """A port whose connections lead to the server, and break after this number of bytes of one side."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_carry, args=(listener, server, side, most))
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def _carry(listener: socket.socket, server: int, side: str, most: int) -> None:
    with listener.accept()[0] as client, socket.create_connection(("127.0.0.1", server)) as other:
        left = {client: most if side == "client" else 10**6, other: most if side == "server" else 10**6}
        ends = {client: other, other: client}
        while True:
            for end in select.select([*ends], [], [])[0]:
                data = end.recv(min(65_536, left[end])) if left[end] else b""
                if not data:
                    return
                ends[end].sendall(data)
                left[end] -= len(data)
