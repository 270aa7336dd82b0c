"""Copies saves between agents: a server for peers, and the two requests, `put` a copy and `get` a save."""

import socket
from collections.abc import Callable
from typing import Any

from pytorchjob_agent.contract.fields import MAX_COUNT, MAX_MEMBERS
from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.server import PeerServer
from pytorchjob_agent.exchange.wire import (
    CALL_SECONDS,
    PeerConnection,
    PeerRefusedError,
    TransferPace,
    copy_file,
    places,
    refusing_nonsense,
)
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.held_saves import Choice
from pytorchjob_agent.saves.manifest import Manifest

Address = tuple[str, int] | tuple[str, int, int]
"""Where a peer is, and which rank it must prove to have."""


class NotHeldError(PeerRefusedError):
    """The peer does not hold what it was asked for: it may still fetch it itself."""


class SaveServer(PeerServer):
    """Serves the saves of this agent to its peers, and takes their copies."""

    def __init__(self, held: HeldSaves, address: str) -> None:
        """Listen on a free port of the address. Raises OSError."""
        self._held, self._pace = held, TransferPace()
        super().__init__(address, "checkpoints", self._handle_request, (ManifestError, FullError))

    def _handle_request(self, connection: PeerConnection, request: dict[str, Any]) -> None:
        if "put" in request:
            manifest = Manifest.from_json(str(request["put"]))
            self._check(manifest, connection.sender)
            receive(self._held, manifest, _ServerSide(connection))
            connection.reply({"kept": True})
            return
        choice, owner = _part(request.get("get"))
        found = self._held.part(choice, owner)
        if found is None:
            connection.reply({"missing": True})  # members below it in the tree ask until it has it
            return
        connection.reply({"manifest": found.to_json()})
        send(self._held, found, connection.read_places(len(found.files)), (connection, self._pace))

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


class _ServerSide:
    """The receiving side of a `put`: it answers with what it needs."""

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection

    def need(self, wanted: list[int]) -> None:
        """Ask for files."""
        self.connection.reply({"need": wanted})


class _ClientSide:
    """The receiving side of a `get`."""

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection

    def need(self, wanted: list[int]) -> None:
        """Ask for files."""
        self.connection.write_places(wanted)


def receive(held: HeldSaves, manifest: Manifest, side: _ServerSide | _ClientSide) -> None:
    """Receive the files of a save that are not held yet, and keep it. Raises PeerRefusedError, FullError, OSError."""
    if manifest.job != held.job:
        raise PeerRefusedError("the save is of another job")
    wanted = [place for place, file in enumerate(manifest.files) if not file.link and held.find(file) is None]
    with held.receiving(sum(manifest.files[place].size for place in wanted), keep=(manifest.id,)) as folder:
        for place, file in enumerate(manifest.files):
            if not file.link and place not in wanted:
                source = held.find(file)
                if source is None:
                    raise PeerRefusedError("a held file has changed meanwhile")
                copy_file(source, folder / str(place), file)
        side.need(wanted)
        for place in wanted:
            side.connection.receive_file(folder / str(place), manifest.files[place])
        held.keep(manifest, folder)


def send(held: HeldSaves, manifest: Manifest, wanted: list[int], to: tuple[PeerConnection, TransferPace]) -> None:
    """Send files of a save. Raises PeerRefusedError and OSError."""
    connection, pace = to
    for place in wanted:
        connection.send_file(held.path(manifest, place), manifest.files[place].size, pace)


def put(held: HeldSaves, manifest: Manifest, peer: Address, keys: RoundKeys) -> None:
    """Copy a save to a peer. Raises PeerRefusedError with the peer's reason, and OSError."""
    connection = _connect(peer, keys)
    try:
        with refusing_nonsense():
            answer = connection.ask({"put": manifest.to_json()})
            send(held, manifest, places(answer, len(manifest.files)), (connection, TransferPace()))
            connection.answer()
    finally:
        connection.close()


def get(
    held: HeldSaves,
    choice: Choice,
    owner: int,
    peer: Address,
    keys: RoundKeys,
    goes_on: Callable[[], bool] = lambda: True,
) -> Manifest:
    """Fetch the part of a chosen save that this owner wrote, and keep it; stop if it need not go on.

    Raises NotHeldError, PeerRefusedError, ManifestError, FullError and OSError.
    """
    connection = _connect(peer, keys)
    connection.goes_on = goes_on
    try:
        with refusing_nonsense():
            answer = connection.ask({"get": [choice.to_text(), owner]})
            if answer.get("missing"):
                raise NotHeldError("this save is not held there")
            manifest = Manifest.from_json(str(answer.get("manifest")))
            if manifest.id.owner != owner or not choice.includes(manifest.held()):
                raise PeerRefusedError("the peer sends another save")
            receive(held, manifest, _ClientSide(connection))
            return manifest
    finally:
        connection.close()


def _connect(peer: Address, keys: RoundKeys) -> PeerConnection:
    host, port, *rank = peer
    sock = socket.create_connection((host, port), timeout=CALL_SECONDS)
    return PeerConnection(keys.as_client(sock, *rank), keys.secret)


def _part(value: Any) -> tuple[Choice, int]:
    try:
        text, owner = value
        choice = Choice.from_text(str(text))
        if choice is None or type(owner) is not int:
            raise ValueError
        return choice, owner
    except (ValueError, TypeError, ArithmeticError):
        raise PeerRefusedError("the request names no save") from None
