"""The pieces of a save over several connections: what helpers do not bring to its end, the first one does."""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.checksum import PIECE_BYTES, Checksum, count_of, length_of, of_pieces
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.exchange.wire import PeerConnection, PeerRefusedError, TransferPace
from pytorchjob_agent.saves import copies, streams
from pytorchjob_agent.saves.arrival import Arrival, Piece
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.streams import Batch, Streams
from tests.agent.saves.keys import KEYS
from tests.agent.saves.test_copies import checksum_of, make

ROUND = RoundId(1, 1)
SIZES = [64 * PIECE_BYTES, 0, 5]
PIECES = [(place, number) for place, size in enumerate(SIZES) for number in range(count_of(size))]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 9_000_000])
@pytest.mark.parametrize("chunk", [PIECE_BYTES, PIECE_BYTES + 3, 1_000_001])
def test_a_checksum_is_that_of_the_pieces_however_the_bytes_come(size: int, chunk: int) -> None:
    data, whole = os.urandom(size), Checksum()
    for start in range(0, size, chunk):
        whole.update(data[start : start + chunk])
    lengths = [length_of(size, number) for number in range(count_of(size))]
    starts = [number * PIECE_BYTES for number in range(count_of(size))]
    pieces = [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    assert b"".join(pieces) == data
    assert whole.text() == of_pieces(sha256(piece).digest() for piece in pieces)


class Connections:
    """Connections without a network; what they move is written down."""

    def __init__(self) -> None:
        self.moved = Counter[Piece]()
        self.ended = threading.Event()
        self.helped = threading.Event()
        self._open: list[PeerConnection] = []
        self.first = self.open()

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def open(self) -> PeerConnection:
        near, far = socket.socketpair()
        far.close()
        connection = PeerConnection(near, "")
        connection.end = self.ended.set  # type: ignore[method-assign]
        self._open.append(connection)
        return connection

    def refuse(self) -> PeerConnection:
        self.helped.set()
        raise PeerRefusedError("no thread is free")

    def move(self, connection: PeerConnection, batch: Batch) -> None:
        if connection is self.first:
            assert self.helped.wait(30), "no helper has come"
        else:
            self.help(batch)
        self.moved.update(batch)

    def help(self, batch: Batch) -> None:
        self.helped.set()

    def fails(self, batch: Batch) -> None:
        self.helped.set()
        raise ConnectionResetError

    def hangs(self, batch: Batch) -> None:
        self.helped.set()
        assert self.ended.wait(30), "nobody ends it"
        raise ConnectionResetError


@pytest.fixture
def peers() -> Iterator[Connections]:
    with closing(Connections()) as found:
        yield found


@pytest.mark.parametrize("does", ["help", "fails", "hangs", "refuse"])
def test_each_piece_is_moved_once_whatever_helpers_do(
    peers: Connections, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setattr(streams, "CALL_SECONDS", 0.2)
    if does != "refuse":
        peers.help = getattr(peers, does)  # type: ignore[method-assign]
    Streams(PIECES, SIZES, peers.move).run(peers.first, peers.refuse if does == "refuse" else peers.open, 4)
    assert peers.moved == Counter(PIECES)


def test_the_first_connection_decides_and_ends_the_others(peers: Connections) -> None:
    peers.help = peers.hangs  # type: ignore[method-assign]

    def move(connection: PeerConnection, batch: Batch) -> None:
        peers.move(connection, batch)
        raise PeerRefusedError("the round has ended")

    with pytest.raises(PeerRefusedError, match="the round has ended"):
        Streams(PIECES, SIZES, move).run(peers.first, peers.open, 2)
    assert peers.ended.wait(30)


def test_one_connection_moves_all_in_order(peers: Connections) -> None:
    order = list[Piece]()
    Streams(PIECES, SIZES, lambda _, batch: order.extend(batch)).run(peers.first, peers.refuse, 1)
    assert order == PIECES


@pytest.mark.parametrize("first", ["put", "get"])
def test_a_save_of_many_pieces_arrives_over_several_connections(tmp_path: Path, first: str) -> None:
    own, theirs = (HeldSaves(tmp_path / name, "job", 10**9) for name in ("own", "theirs"))
    manifest = make(own, {"step-5/a.pt": os.urandom(80_000_001), "step-5/b.pt": b"", "step-5/c.pt": b"small"})
    server = SaveServer(own if first == "get" else theirs, "127.0.0.1")
    server.use(KEYS)
    if first == "put":
        copies.put(own, manifest, ("127.0.0.1", server.port), KEYS)
    else:
        copies.get(theirs, Choice(ROUND, 0, 1), 0, ("127.0.0.1", server.port), KEYS)
    server.close()
    assert theirs.get(manifest.id) == manifest
    for place, file in enumerate(manifest.files):
        assert theirs.path(manifest, place).read_bytes() == own.path(manifest, place).read_bytes(), file.path
    assert not [*theirs.root.glob(".pytorchjob/new-*")]


def sent(*contents: bytes) -> PeerConnection:
    """Return a connection from which these pieces come."""
    near, far = socket.socketpair()

    def send() -> None:
        with far:
            for content in contents:
                far.sendall(content)

    threading.Thread(target=send, daemon=True).start()
    return PeerConnection(near, "")


def last_bytes(content: bytes) -> Callable[[Arrival], bool]:
    """Return what sends the last piece of the file, and asks for the save to be kept."""

    def arrive(arrival: Arrival) -> bool:
        with closing(sent(content)) as connection:
            arrival.receive(connection, [(0, 1)])
        return arrival.keep()

    return arrive


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        pytest.param([b"right"], [True], id="once"),
        pytest.param([b"right", b"right"], [True, True], id="twice"),
        pytest.param([b"right", b"wrong"], [True, True], id="what comes later changes nothing"),
        pytest.param([b"wrong"], ["not the announced one"], id="wrong"),
        pytest.param([b"wron"], ["1 bytes less"], id="too short"),
        pytest.param([b"wron", b"right"], ["1 bytes less", True], id="again after a connection that was cut"),
    ],
)
def test_what_an_arrival_keeps(tmp_path: Path, steps: list[bytes], kept: list[bool | str]) -> None:
    held, start = HeldSaves(tmp_path, "job", 10**8), b"x" * PIECE_BYTES
    file = HeldFile("a.pt", PIECE_BYTES + 5, 1_000_000_000, checksum_of(start + b"right"))
    manifest = Manifest("job", SaveId(ROUND, 0, 1), (file,))
    with held.receiving(file.size) as folder:
        arrival = Arrival(held, manifest, [0], folder)
        with closing(sent(start)) as connection:
            arrival.receive(connection, [(0, 0)])
        assert not arrival.keep(), "one piece is missing"
        for content, expected in zip(steps, kept, strict=True):
            if isinstance(expected, str):
                with pytest.raises(PeerRefusedError, match=expected):
                    last_bytes(content)(arrival)
            else:
                assert last_bytes(content)(arrival) is expected
    if kept[-1] is True:
        assert held.path(manifest, 0).read_bytes() == start + b"right"
    else:
        assert held.list() == ()


def test_only_files_that_are_asked_for_are_written(tmp_path: Path) -> None:
    """The others are second names of held files, which the script may have too."""
    theirs = HeldSaves(tmp_path, "job", 10**8)
    held = make(theirs, {"a.pt": b"whole"})
    second = Manifest("job", SaveId(ROUND, 0, 2), (held.files[0], HeldFile("b.pt", 5, 1, "0" * 64)))
    server = SaveServer(theirs, "127.0.0.1")
    server.use(KEYS)
    with closing(PeerConnection(KEYS.connect("127.0.0.1", server.port), KEYS.secret)) as connection:
        assert connection.ask({"put": second.to_json()})["need"] == [1]
        connection.write_pieces([(0, 0)])
        with suppress(OSError):
            connection._sock.sendall(b"wrong")
        with pytest.raises((PeerRefusedError, OSError)):
            connection.answer()
    server.close()
    assert theirs.path(held, 0).read_bytes() == b"whole"


def test_another_save_under_the_number_of_one_that_arrives_is_refused(tmp_path: Path) -> None:
    held = HeldSaves(tmp_path, "job", 10**8)
    first, second = (
        Manifest("job", SaveId(ROUND, 0, 1), (HeldFile("a.pt", 5, 1, digit * 64),)) for digit in ("0", "1")
    )
    server = SaveServer(held, "127.0.0.1")
    server.use(KEYS)
    with closing(PeerConnection(KEYS.connect("127.0.0.1", server.port), KEYS.secret)) as connection:
        connection.ask({"put": first.to_json()})
        with pytest.raises(PeerRefusedError, match="this number already"):
            copies.put(held, second, ("127.0.0.1", server.port), KEYS)
    server.close()


@pytest.mark.parametrize(
    "pieces", [[[0]], [[0, 1]], [[1, 0]], [[-1, 0]], [[0, -1]], [["0", 0]], [[True, 0]], [[0, 0, 0]], "00", {}, None]
)
def test_pieces_that_no_file_has_are_refused(pieces: object) -> None:
    near, far = socket.socketpair()
    with closing(PeerConnection(near, "")) as here, closing(PeerConnection(far, "")) as there:
        there.write_pieces(cast("list[tuple[int, int]]", pieces))
        with pytest.raises(PeerRefusedError, match="pieces that the files do not have"):
            here.read_pieces([5])


def test_threads_share_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    pace = TransferPace(1000.0)
    for _ in range(50):
        pace.wait(100)
    assert clock[0] == pytest.approx(105.0, abs=0.25)
    clock[0] += 60.0
    for _ in range(10):
        pace.wait(100)
    assert clock[0] == pytest.approx(166.0, abs=0.25), "a pause allows no burst"
