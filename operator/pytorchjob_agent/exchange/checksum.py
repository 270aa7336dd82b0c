"""The checksum of a file: that of its one piece, or of the checksums of its pieces, so that several threads compute it.
Pure.

The size of a file belongs to its checksum: one piece with the checksums of a larger file has another size.
"""

from collections.abc import Iterable
from hashlib import sha256

PIECE_BYTES = 4 * 2**20


def count_of(size: int) -> int:
    """Return how many pieces a file of this many bytes has; an empty file has one."""
    return max(-(-size // PIECE_BYTES), 1)


def length_of(size: int, number: int) -> int:
    """Return how many bytes the piece with this number has, counted from 0."""
    return min(PIECE_BYTES, size - number * PIECE_BYTES)


def of_pieces(checksums: Iterable[bytes]) -> str:
    """Return the checksum of a file, as 64 hexadecimal digits, from the SHA-256 of each of its pieces."""
    listed = [*checksums]
    return listed[0].hex() if len(listed) == 1 else sha256(b"".join(listed)).hexdigest()


class Checksum:
    """Computes the checksum of a file whose bytes come in order."""

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._earlier: list[bytes] = []
        self._piece, self._left = sha256(), PIECE_BYTES

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        rest = memoryview(data)
        while rest:
            if not self._left:
                self._earlier.append(self._piece.digest())
                self._piece, self._left = sha256(), PIECE_BYTES
            now, rest = rest[: self._left], rest[self._left :]
            self._piece.update(now)
            self._left -= len(now)

    def text(self) -> str:
        """Return the checksum of all bytes so far."""
        return of_pieces([*self._earlier, self._piece.digest()])
