"""Copies caches between two agents: the request of a new pod, and the answer of a pod that has them.

The new pod sends its key and receives the list of files. It names those that it wants. Each one follows its checksum,
which is authenticated by the secret of the round.
"""

import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytorchjob_agent.caches import listing
from pytorchjob_agent.caches.directory import CacheFolder
from pytorchjob_agent.caches.listing import CachedFile, unit_of
from pytorchjob_agent.exchange.checksum import Checksum
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.exchange.files import make_parent, open_file, open_for_writing
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.server import PeerServer
from pytorchjob_agent.exchange.wire import (
    PeerConnection,
    PeerRefusedError,
    TransferPace,
    refusing_nonsense,
)

_CHUNK = 1 << 20
_BYTES_PER_SECOND = 200e6
_SPARE = 2
"""How many times the size of the caches the disk must have free."""


class CacheServer(PeerServer):
    """Serves the caches of this pod."""

    def __init__(self, folder: CacheFolder, key: str, address: str) -> None:
        """Listen on a free port of the address. Raises OSError."""
        self._folder, self._key = folder, key
        super().__init__(address, "caches", self._send)

    def _send(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        if request.get("caches") != self._key:
            raise PeerRefusedError("the caches here are of other versions, devices or another image")
        files = self._folder.offer(time.time_ns(), open_for_writing(self._folder.root, os.getpid()))
        connection.reply({"files": listing.to_json(files)})
        pace = TransferPace(_BYTES_PER_SECOND)
        for place in connection.read_places(len(files)):
            _send_file(connection, self._folder.root, (place, files[place]), pace)


def _send_file(connection: PeerConnection, root: Path, offered: tuple[int, CachedFile], pace: TransferPace) -> None:
    """Send the checksum, then the bytes. A file that has changed since it was offered is passed over."""
    place, file = offered
    checksum = None if file.link else _checksum(root / file.path, file)
    connection.reply({"place": place, "checksum": checksum, "gone": checksum is None and not file.link})
    if checksum is not None:
        connection.send_file(root / file.path, file.size, pace)


def _checksum(path: Path, file: CachedFile) -> str | None:
    checksum = Checksum()
    try:
        with open_file(path) as data:
            found = os.fstat(data.fileno())
            if (found.st_size, found.st_mtime_ns) != (file.size, file.mtime_ns):
                return None
            while chunk := data.read(_CHUNK):
                checksum.update(chunk)
    except OSError:
        return None
    return checksum.text()


class Fetch:
    """Fetches the caches of one peer; another thread may end it at any time."""

    def __init__(self, folder: CacheFolder, key: str, keys: RoundKeys) -> None:
        """Prepare; `keys` are the round's."""
        self._folder, self._key, self._keys = folder, key, keys
        self._sock: socket.socket | None = None
        self._ended = False
        self.files = self.bytes = 0
        """How many have arrived and have their names."""

    def end(self) -> None:
        """End a fetch that has had its time; what has arrived whole stays."""
        self._ended = True
        sock = self._sock
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of TLS would switch off the encryption first

    def run(self, peer: tuple[str, int]) -> None:
        """Fetch all that this folder lacks. Raises PeerRefusedError with the reason, and OSError."""
        if self._ended:
            return
        self._sock = self._keys.connect(*peer)
        connection = PeerConnection(self._sock, self._keys.secret)
        try:
            with refusing_nonsense():
                offered = listing.from_json(connection.ask({"caches": self._key}).get("files"))
                wanted = [place for place, file in enumerate(offered) if self._lacks(file)]
                self._check_room(sum(offered[place].size for place in wanted))
                connection.write_places(wanted)
                _Arrival(self._folder, offered, self._count).receive(connection, wanted)
        finally:
            connection.close()
            self._folder.clear_incoming()

    def _check_room(self, size: int) -> None:
        free = shutil.disk_usage(self._folder.root).free
        if free < _SPARE * size:
            raise PeerRefusedError(f"{size} bytes are offered, and the disk has {free} left")

    def _lacks(self, file: CachedFile) -> bool:
        unit = self._folder.root / (unit_of(file.path) or file.path)
        return not unit.exists() or (unit.is_dir() and not any(unit.iterdir()))

    def _count(self, files: Sequence[CachedFile]) -> bool:
        """Count files that have arrived; False once the fetch has ended."""
        self.files += len(files)
        self.bytes += sum(file.size for file in files)
        return not self._ended


class _Arrival:
    """Files on their way into the folder: single ones get their names at once, those of a unit together."""

    def __init__(
        self, folder: CacheFolder, offered: Sequence[CachedFile], count: Callable[[Sequence[CachedFile]], bool]
    ) -> None:
        self._folder, self._offered, self._count = folder, offered, count
        self._staged = folder.incoming()

    def receive(self, connection: PeerConnection, wanted: Sequence[int]) -> None:
        """Receive these files in this order, which has the files of a unit side by side."""
        unit, arrived, whole = "", list[CachedFile](), True
        for place in wanted:
            file = self._offered[place]
            if unit_of(file.path) != unit:
                self._finish(unit, arrived, whole=whole)
                unit, arrived, whole = unit_of(file.path), [], True
            got = self._receive(connection, place, file)
            whole = whole and got
            arrived += [file] if got else []
            if not unit and got:
                self._name(file.path, file.path, [file])
                arrived = []
        self._finish(unit, arrived, whole=whole)

    def _receive(self, connection: PeerConnection, place: int, file: CachedFile) -> bool:
        header = connection.answer()
        if header.get("place") != place:
            raise PeerRefusedError("the peer sends another file than the next one")
        target = make_parent(self._staged, file.path)
        if file.link:
            os.symlink(file.link, target)
        elif not header.get("gone"):
            connection.receive_file(target, HeldFile(file.path, file.size, file.mtime_ns, str(header.get("checksum"))))
        return not header.get("gone")

    def _finish(self, unit: str, arrived: list[CachedFile], *, whole: bool) -> None:
        if unit and arrived and whole:
            self._name(unit, unit, arrived)

    def _name(self, staged: str, path: str, files: Sequence[CachedFile]) -> None:
        if self._folder.place(self._staged / staged, path) and not self._count(files):
            raise PeerRefusedError("the fetch has had its time")
