"""Copies saves between agents: a server for peers, and the two requests, `put` a copy and `get` a save.

A request may have several connections, which share its pieces. All of them say the same, and the first one decides: the
request fails with it, and ends with it. What another one does not bring to its end, the first one does.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytorchjob_agent.contract.fields import MAX_COUNT, MAX_MEMBERS
from pytorchjob_agent.exchange.checksum import PIECE_BYTES, length_of
from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.server import PeerServer
from pytorchjob_agent.exchange.wire import (
    UNLIMITED,
    PeerConnection,
    PeerRefusedError,
    TransferPace,
    places,
    refusing_nonsense,
)
from pytorchjob_agent.saves.arrival import Arrival, lacking, pieces_of
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.streams import Batch, Streams

MOST_CONNECTIONS = min(len(os.sched_getaffinity(0)), 4)
"""Over which one save is moved: more than there are cores slow each other down."""
_CONNECTION_RATE = 500e6
"""Bytes per second that one connection moves on one core, about: a faster pace takes more connections."""

Address = tuple[str, int] | tuple[str, int, int]
"""Where a peer is, and which rank it must prove to have."""


class NotHeldError(PeerRefusedError):
    """The peer does not hold what it was asked for: it may still fetch it itself."""


class SaveServer(PeerServer):
    """Serves the saves of this agent to its peers, and takes their copies."""

    def __init__(self, held: HeldSaves, address: str) -> None:
        """Listen on a free port of the address. Raises OSError."""
        self._held = held
        self._arrivals: dict[SaveId, _Shared] = {}
        self._lock = threading.Lock()
        super().__init__(address, "checkpoints", self._handle_request, (ManifestError, FullError))

    def _handle_request(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        if "put" in request:
            manifest = Manifest.from_json(str(request["put"]))
            self._check(manifest, connection.sender)
            self._take(connection, manifest)
            return
        choice, owner = _part(request.get("get"))
        found = self._held.part(choice, owner)
        if found is None:
            connection.reply({"missing": True})  # members below it in the tree ask until it has it
            return
        connection.reply({"manifest": found.to_json()})
        sizes = found.sizes
        while pieces := connection.read_pieces(sizes):
            _send(self._held, found, pieces, (connection, UNLIMITED))

    def _take(self, connection: PeerConnection, manifest: Manifest) -> None:
        if self._held.get(manifest.id) == manifest:
            connection.reply({"need": []})
            connection.read_pieces([])
            connection.reply({"kept": True})
            return
        with self._arriving(manifest) as arrival:
            connection.reply({"need": arrival.wanted})
            while True:
                pieces = connection.read_pieces(arrival.sizes)
                arrival.receive(connection, pieces)
                connection.reply({"kept": arrival.keep()})
                if not pieces:
                    return

    @contextmanager
    def _arriving(self, manifest: Manifest) -> Iterator[Arrival]:
        """Return the arrival that all connections of a request share; the last one of them ends it."""
        with self._lock:
            shared = self._arrivals.setdefault(manifest.id, _Shared(manifest))
            if shared.manifest != manifest:
                raise PeerRefusedError("another save has this number already")
            shared.connections += 1
        try:
            yield shared.begun(self._held)
        finally:
            with self._lock:
                shared.connections -= 1
                last = not shared.connections
                if last:
                    del self._arrivals[manifest.id]
            if last:
                shared.end.close()

    def _check(self, manifest: Manifest, sender: int | None) -> None:
        """Refuse a save that its sender cannot have made, or that is another one under a name which is taken.

        Members send the saves of their own workers, in the round in which these work.
        """
        id_, keys = manifest.id, self.keys
        if keys.round is not None and (id_.round != keys.round or id_.owner == keys.rank):
            raise PeerRefusedError(f"a save of round {id_.round}, rank {id_.owner} is nobody's but its own")
        if keys.certificate and sender != id_.owner:
            raise PeerRefusedError(f"a save of rank {id_.owner} is sent by it alone")
        if id_.owner > MAX_MEMBERS or id_.number > MAX_COUNT:
            raise PeerRefusedError("nobody has so many members or saves")
        known = self._held.get(id_)
        if known is not None and known != manifest:
            raise PeerRefusedError("another save has this number already")


@dataclass(slots=True)
class _Shared:
    """A save that several connections bring."""

    manifest: Manifest
    connections: int = 0
    end: ExitStack = field(default_factory=ExitStack)
    """Ends its arrival."""
    _arrival: Arrival | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begun(self, held: HeldSaves) -> Arrival:
        """Return its arrival. Raises PeerRefusedError, FullError and OSError."""
        with self._lock:
            if self._arrival is None:
                self._arrival = _begin(held, self.manifest, self.end)
            return self._arrival


def _begin(held: HeldSaves, manifest: Manifest, end: ExitStack) -> Arrival:
    """Reserve room for the files of a save that are not held yet. Raises PeerRefusedError, FullError and OSError."""
    wanted = lacking(held, manifest)
    room = held.receiving(sum(manifest.files[place].size for place in wanted), keep=(manifest.id,))
    return Arrival(held, manifest, wanted, end.enter_context(room))


def _send(held: HeldSaves, manifest: Manifest, batch: Batch, to: tuple[PeerConnection, TransferPace]) -> None:
    """Send pieces of a save. Raises PeerRefusedError and OSError."""
    connection, pace = to
    for place, number in batch:
        at = number * PIECE_BYTES, length_of(manifest.files[place].size, number)
        connection.send_piece(held.path(manifest, place), at, pace)


def put(held: HeldSaves, manifest: Manifest, peer: Address, keys: RoundKeys, pace: TransferPace = UNLIMITED) -> None:
    """Copy a save to a peer. Raises PeerRefusedError with the peer's reason, and OSError."""

    def move(connection: PeerConnection, batch: Batch) -> None:
        connection.write_pieces(batch)
        _send(held, manifest, batch, (connection, pace))
        connection.answer()

    def offer() -> tuple[PeerConnection, dict[str, Any]]:
        return _asked(peer, keys, {"put": manifest.to_json()})

    with refusing_nonsense():
        connection, answer = offer()
        with closing(connection):
            wanted = places(answer, len(manifest.files))
            streams = Streams(pieces_of(manifest, wanted), manifest.sizes, move)
            streams.run(connection, lambda: offer()[0], connections_for(pace))
            connection.write_pieces([])
            if not connection.answer().get("kept"):
                raise PeerRefusedError("the peer has not received all files")


@dataclass(frozen=True, slots=True)
class Receiving:
    """How a save is fetched."""

    goes_on: Callable[[], bool] = lambda: True
    """False: it need not go on."""
    pace: TransferPace = UNLIMITED
    connections: int = MOST_CONNECTIONS


def get(
    held: HeldSaves, choice: Choice, owner: int, peer: Address, keys: RoundKeys, how: Receiving = Receiving()
) -> Manifest:
    """Fetch the part of a chosen save that this owner wrote, and keep it.

    Raises NotHeldError, PeerRefusedError, ManifestError, FullError and OSError.
    """

    def ask() -> tuple[PeerConnection, Manifest]:
        connection, answer = _asked(peer, keys, {"get": [choice.to_text(), owner]})
        connection.goes_on = how.goes_on
        try:
            return connection, _offered(answer, choice, owner)
        except BaseException:
            connection.close()
            raise

    def ask_again() -> PeerConnection:
        other, theirs = ask()
        if theirs != manifest:
            other.close()
            raise PeerRefusedError("the peer has a newer part meanwhile")
        return other

    def move(connection: PeerConnection, batch: Batch) -> None:
        connection.write_pieces(batch)
        arrival.receive(connection, batch, how.pace)

    with refusing_nonsense(), ExitStack() as end:
        connection, manifest = ask()
        end.enter_context(closing(connection))
        arrival = _begin(held, manifest, end)
        Streams(pieces_of(manifest, arrival.wanted), arrival.sizes, move).run(
            connection, ask_again, min(how.connections, connections_for(how.pace))
        )
        if not arrival.keep():
            raise PeerRefusedError("the peer has not sent all files")
        return manifest


def connections_for(pace: TransferPace) -> int:
    """Return over how many connections a save is moved at this pace."""
    if pace.bytes_per_second >= MOST_CONNECTIONS * _CONNECTION_RATE:
        return MOST_CONNECTIONS
    return max(math.ceil(pace.bytes_per_second / _CONNECTION_RATE), 1)


def _asked(peer: Address, keys: RoundKeys, request: dict[str, Any]) -> tuple[PeerConnection, dict[str, Any]]:
    """Return a new connection to a peer, and its answer to a request."""
    connection = PeerConnection(keys.connect(*peer), keys.secret)
    try:
        return connection, connection.ask(request)
    except BaseException:
        connection.close()
        raise


def _offered(answer: dict[str, Any], choice: Choice, owner: int) -> Manifest:
    if answer.get("missing"):
        raise NotHeldError("this save is not held there")
    manifest = Manifest.from_json(str(answer.get("manifest")))
    if manifest.id.owner != owner or not choice.includes(manifest.held()):
        raise PeerRefusedError("the peer sends another save")
    return manifest


def _part(value: Any) -> tuple[Choice, int]:
    try:
        text, owner = value
        choice = Choice.from_text(str(text))
        if choice is None or type(owner) is not int:
            raise ValueError
        return choice, owner
    except (ValueError, TypeError, ArithmeticError):
        raise PeerRefusedError("the request names no save") from None
