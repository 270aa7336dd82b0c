"""Moves the pieces of one save over several connections at once, and reads them in several threads: each takes a core.

The first connection decides whether the save is moved. The others help: what they do not bring to its end, the first
one does itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import TypeVar

from pytorchjob_agent.exchange.checksum import PIECE_BYTES, length_of
from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.exchange.wire import CALL_SECONDS, PeerConnection, PeerRefusedError, refusing_nonsense
from pytorchjob_agent.saves.arrival import Piece

_BATCH_BYTES = 8 * PIECE_BYTES
"""What is asked for at once: several pieces, so that the way there and back costs little."""
_BATCH_PIECES = 256

T = TypeVar("T")
Batch = list[Piece]
Move = Callable[[PeerConnection, Batch], None]
"""Moves a batch over a connection. Raises PeerRefusedError and OSError."""


class Streams:
    """The pieces of one save that are not moved yet, and the connections that move them."""

    def __init__(self, pieces: Sequence[Piece], sizes: Sequence[int], move: Move) -> None:
        """Prepare; `sizes` are those of the files."""
        self._left, self._move = deque(_batches(pieces, sizes)), move
        self._elsewhere = 0
        """Batches that helping connections have in hand."""
        self._helping: set[PeerConnection] = set()
        self._changed = threading.Condition()
        self._ended = False

    def run(self, first: PeerConnection, open_: Callable[[], PeerConnection], most: int) -> None:
        """Move all over the first connection and some that `open_` opens, `most` together; return once all is moved.

        `open_` raises PeerRefusedError, ManifestError and OSError: then one connection fewer helps.
        """
        try:
            with suppress(RuntimeError):  # no thread more is allowed here
                for _ in range(min(most, len(self._left)) - 1):
                    threading.Thread(target=self._help, args=(open_,), name="checkpoint stream", daemon=True).start()
            while (batch := self._next()) is not None:
                self._move(first, batch)
        finally:
            with self._changed:
                self._ended = True
                self._end_helpers()

    def _next(self) -> Batch | None:
        """Return the first connection's next batch; None once nothing is left, and no other one has any in hand.

        The other side hears nothing from it meanwhile: a helper that hangs is ended before that is too long.
        """
        with self._changed:
            while not self._changed.wait_for(lambda: self._left or not self._elsewhere, CALL_SECONDS / 2):
                self._end_helpers()
            return self._left.popleft() if self._left else None

    def _help(self, open_: Callable[[], PeerConnection]) -> None:
        try:
            with refusing_nonsense(), closing(open_()) as connection:
                with self._changed:
                    self._helping.add(connection)
                while (batch := self._take()) is not None:
                    self._move_elsewhere(connection, batch)
        except (PeerRefusedError, ManifestError, OSError):
            pass  # the first connection has the reason too, or goes on without this one

    def _take(self) -> Batch | None:
        """Return a helper's next batch; None: there is none any more."""
        with self._changed:
            if self._ended or not self._left:
                return None
            self._elsewhere += 1
            return self._left.popleft()

    def _move_elsewhere(self, connection: PeerConnection, batch: Batch) -> None:
        moved = False
        try:
            self._move(connection, batch)
            moved = True
        finally:
            with self._changed:
                self._elsewhere -= 1
                if not moved:
                    self._left.append(batch)
                self._changed.notify_all()

    def _end_helpers(self) -> None:
        for connection in self._helping:
            connection.end()


def in_threads(work: Callable[[int], T], count: int, threads: int) -> list[T]:
    """Return the results for 0 to count - 1, which this many threads compute; the first error ends them all.

    Nothing waits for the threads at the end of the program: storage may block them for ever.
    """
    if min(threads, count) <= 1:
        return [work(number) for number in range(count)]
    numbers, results, errors = iter(range(count)), dict[int, T](), list[BaseException]()
    lock = threading.Lock()

    def run() -> None:
        while not errors:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                results[number] = work(number)
            except BaseException as error:
                errors.append(error)

    running = [threading.Thread(target=run, name="checkpoint reader", daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(count)]


def _batches(pieces: Sequence[Piece], sizes: Sequence[int]) -> list[Batch]:
    """Return the pieces in batches, in their order."""
    found: list[Batch] = []
    size = _BATCH_BYTES
    for piece in pieces:
        if size >= _BATCH_BYTES or len(found[-1]) == _BATCH_PIECES:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += length_of(sizes[piece[0]], piece[1])
    return found
