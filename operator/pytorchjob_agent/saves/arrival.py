"""The files of one save on their way into this member's memory. Several connections may bring pieces at once."""

import os
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pytorchjob_agent.exchange.checksum import PIECE_BYTES, count_of, length_of, of_pieces
from pytorchjob_agent.exchange.wire import UNLIMITED, PeerConnection, PeerRefusedError, TransferPace, copy_file
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.manifest import Manifest

Piece = tuple[int, int]
"""The place of a file in the manifest, and the number of one of its pieces."""


def lacking(held: HeldSaves, manifest: Manifest) -> list[int]:
    """Return the places of the files that are not held yet. Raises PeerRefusedError for a save of another job."""
    if manifest.job != held.job:
        raise PeerRefusedError("the save is of another job")
    return [place for place, file in enumerate(manifest.files) if not file.link and held.find(file) is None]


class Arrival:
    """Receives the files of a save that are not held yet."""

    def __init__(self, held: HeldSaves, manifest: Manifest, wanted: Sequence[int], folder: Path) -> None:
        """Take over an empty folder with room for the `wanted` files; the others are held. Raises PeerRefusedError."""
        self.manifest, self.wanted = manifest, tuple(wanted)
        self.sizes = manifest.sizes
        self._held, self._folder = held, folder
        self._lock = threading.Condition()
        self._checksums: dict[Piece, bytes] = {}
        """Of the pieces that have come."""
        self._most = len(pieces_of(manifest, wanted))
        self._writing = 0
        self._kept = False
        self._new = frozenset(wanted)
        for place, file in enumerate(manifest.files):
            if place in self._new:
                (folder / str(place)).touch()
            elif not file.link:
                source = held.find(file)
                if source is None:
                    raise PeerRefusedError("a held file has changed meanwhile")
                copy_file(source, folder / str(place), file)

    def receive(self, connection: PeerConnection, pieces: Sequence[Piece], pace: TransferPace = UNLIMITED) -> None:
        """Receive these pieces in their order. Raises PeerRefusedError and OSError.

        Only files that are wanted: the others are second names of files that are held, or of the script's own.
        """
        if any(place not in self._new for place, _ in pieces):
            raise PeerRefusedError("the peer sends a file that is held already")
        buffer = bytearray(PIECE_BYTES)
        for piece in pieces:
            place, number = piece
            data = memoryview(buffer)[: length_of(self.sizes[place], number)]
            connection.receive_piece(self.manifest.files[place].path, data, pace)
            self._write(piece, data)

    def keep(self) -> bool:
        """Keep the save once all its pieces are here, and return whether it is kept; it may be called again.

        Raises PeerRefusedError if a file has not the checksum that the manifest lists, and OSError.
        """
        with self._lock:
            if len(self._checksums) == self._most:
                self._lock.wait_for(lambda: not self._writing)
            if not self._kept and len(self._checksums) == self._most:
                self._compare()
                self._held.keep(self.manifest, self._folder)
                self._kept = True
            return self._kept

    def _write(self, piece: Piece, data: memoryview) -> None:
        """Write a piece. Only its first copy counts: what was compared must not change."""
        checksum, (place, number) = sha256(data).digest(), piece
        with self._lock:
            if self._kept or piece in self._checksums:
                return
            self._checksums[piece] = checksum
            self._writing += 1
        written = False
        try:
            with (self._folder / str(place)).open("r+b", buffering=0) as file:
                file.seek(number * PIECE_BYTES)
                while data:
                    data = data[file.write(data) :]
            written = True
        finally:
            with self._lock:
                if not written:
                    self._checksums.pop(piece)
                self._writing -= 1
                self._lock.notify_all()

    def _compare(self) -> None:
        for place in self.wanted:
            file = self.manifest.files[place]
            listed = (self._checksums[place, number] for number in range(count_of(file.size)))
            if of_pieces(listed) != file.checksum:
                raise PeerRefusedError(f"{file.path}: the checksum is not the announced one")
            os.utime(self._folder / str(place), ns=(file.mtime_ns, file.mtime_ns))


def pieces_of(manifest: Manifest, wanted: Sequence[int]) -> list[Piece]:
    """Return all pieces of these files."""
    return [(place, number) for place in wanted for number in range(count_of(manifest.files[place].size))]
