"""A member of a round, with all that it has of the coordinator, poses as another member at the port for checkpoints.

It knows the secret of the round, so it can write what it likes in the round's store. It wants a third member to hold a
save of its own making in the name of a second one, or to fetch such a save from it.
"""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import PeerConnection, PeerRefusedError
from pytorchjob_agent.saves import copies
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held_saves import choice_of
from pytorchjob_agent.saves.manifest import Manifest
from tests.agent.saves.keys import members
from tests.agent.saves.test_copies import held_by, make
from tests.attacks.bystander import timed, watching_beside

ROUND = RoundId(1, 1)
KEYS = members("5ec2e7", 4, ROUND)
VICTIM, ATTACKER, THIRD, NEIGHBOUR = KEYS


class Job:
    """Each member's memory, and the port of the third one."""

    def __init__(self, folder: Path) -> None:
        self.held = [held_by(folder / str(keys.rank), limit=10**8) for keys in KEYS]
        self.server = SaveServer(self.held[THIRD.rank], "127.0.0.1")
        self.server.use(THIRD)
        self._numbers = count(1)

    def at_third(self) -> tuple[str, int, int]:
        """Where the third member serves."""
        return "127.0.0.1", self.server.port, THIRD.rank

    def made(self, by: RoundKeys, owner: RoundKeys) -> Manifest:
        """A save that one member makes, in the name of another one."""
        return make(self.held[by.rank], {"latest.pt": os.urandom(100)}, next(self._numbers), owner.rank)

    def copy(self, keys: RoundKeys) -> None:
        """A member copies a save of its own to the third one."""
        copies.put(self.held[keys.rank], self.made(keys, keys), self.at_third(), keys)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    made.copy(VICTIM)
    yield made
    made.server.close()


def _own_certificate(sock: socket.socket) -> socket.socket:
    return ATTACKER.as_client(sock, THIRD.rank)


def _no_certificate(sock: socket.socket) -> socket.socket:
    """It only encrypts."""
    context = ssl.create_default_context(cadata=ATTACKER.certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context.wrap_socket(sock, server_hostname=SERVER_NAME)


def _certificate_of_its_own_making(sock: socket.socket) -> socket.socket:
    """It names the victim, and another authority has signed it."""
    made, begin = members(ATTACKER.secret, len(KEYS))[VICTIM.rank].certificate, "-----BEGIN"
    own, trusted = made.rpartition(begin)[0], ATTACKER.certificate.rpartition(begin)[2]
    return replace(ATTACKER, certificate=f"{own}{begin}{trusted}").as_client(sock)


@pytest.mark.parametrize(
    "connect",
    [
        pytest.param(_own_certificate, id="with its own certificate"),
        pytest.param(_no_certificate, id="without a certificate"),
        pytest.param(_certificate_of_its_own_making, id="with a certificate of its own making"),
    ],
)
def test_a_member_cannot_have_a_save_held_in_the_name_of_another_member(
    job: Job, connect: Callable[[socket.socket], socket.socket]
) -> None:
    before = job.held[THIRD.rank].list()

    def attack() -> None:
        forged = job.made(ATTACKER, VICTIM)
        refused = pytest.raises((PeerRefusedError, OSError))
        with (
            socket.create_connection(job.at_third()[:2], 30) as plain,
            refused,
            connect(plain) as sock,
            closing(PeerConnection(sock, ATTACKER.secret)) as connection,
        ):
            connection.ask({"put": forged.to_json()})

    with watching_beside("a member's own copy", lambda: timed(lambda: job.copy(NEIGHBOUR))) as neighbour:
        neighbour.while_repeated(attack)
    after = job.held[THIRD.rank].list()
    assert [save for save in after if save.id.owner == VICTIM.rank] == [*before]


@pytest.mark.without_bystander("the connection ends before a request is read")
@pytest.mark.parametrize("connect", [_no_certificate, _certificate_of_its_own_making])
def test_who_shows_no_certificate_of_the_round_reads_no_save(
    job: Job, connect: Callable[[socket.socket], socket.socket]
) -> None:
    """It knows the secret of the round: from a log, or from a member that gave it away."""
    (held,) = job.held[THIRD.rank].list()
    with (
        socket.create_connection(job.at_third()[:2], 30) as plain,
        pytest.raises((PeerRefusedError, OSError)),
        connect(plain) as sock,
        closing(PeerConnection(sock, ATTACKER.secret)) as connection,
    ):
        connection.ask({"get": [choice_of(held).to_text(), held.id.owner]})


def test_a_member_that_publishes_its_address_as_another_members_is_neither_asked_nor_given(job: Job) -> None:
    """The third member is lured to the attacker's port, where it expects the victim."""
    own = job.held[ATTACKER.rank]
    forged = job.made(ATTACKER, VICTIM)
    lure = SaveServer(own, "127.0.0.1")
    lure.use(ATTACKER)
    where = ("127.0.0.1", lure.port, VICTIM.rank)
    third = job.held[THIRD.rank]
    mine = make(third, {"latest.pt": b"mine"}, 1, THIRD.rank)

    def attack() -> None:
        with pytest.raises(ssl.SSLError):
            copies.get(third, choice_of(forged.held()), VICTIM.rank, where, THIRD)
        with pytest.raises(ssl.SSLError):
            copies.put(third, mine, where, THIRD)

    with watching_beside("a member's own copy", lambda: timed(lambda: job.copy(NEIGHBOUR))) as neighbour:
        neighbour.while_repeated(attack)
    lure.close()
    assert own.get(mine.id) is None
    assert third.get(forged.id) is None
