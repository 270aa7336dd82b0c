"""From where a member takes the parts of the chosen save: its memory, then a peer, then the durable directory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.contract.checkpoint_rules import DurableRules
from pytorchjob_agent.exchange.wire import UNLIMITED, PeerRefusedError
from pytorchjob_agent.saves import copies
from pytorchjob_agent.saves.copies import Receiving, SaveServer
from pytorchjob_agent.saves.durable import DurableSaves
from pytorchjob_agent.saves.durable_tier import DurableTier
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.restore import Fetching, MissingError, PartSources
from tests.agent.saves.keys import draw, members
from tests.agent.saves.test_copies import ROUND, held_by, make

OWN, THEIRS, ABOVE = members("secret", 3)
CHOICE = Choice(ROUND, 0, 1)
WHOLE = {"latest.pt": b"whole"}


class Member:
    """A member with a peer and a durable directory."""

    def __init__(self, folder: Path) -> None:
        self.held, self.theirs = held_by(folder / "own"), held_by(folder / "theirs")
        self.server = SaveServer(self.theirs, "127.0.0.1")
        self.server.use(THEIRS)
        self.port = self.server.port
        self.saves = DurableSaves(folder / "durable", "job")
        self.tier = DurableTier(self.held, DurableRules(str(folder / "durable")), "job", UNLIMITED)

    def stored(self, source: HeldSaves, manifest: Manifest) -> None:
        """Bring a save to the durable directory, and let the member know of it."""
        self.saves.write(manifest, lambda place, offset: source.read(manifest, place, offset, 100), lambda _: None)
        assert self.tier.offered()

    def peer(self) -> Peer:
        """The peer as it has published what it holds."""
        return Peer(1, "127.0.0.1", self.port, "node", "directory", self.theirs.list())

    def fetch(self, *above: Peer, goes_on: Callable[[], bool] = lambda: True) -> list[Manifest]:
        """Fetch the chosen save: from these members, then from the peer."""
        peers = [*above, self.peer()]
        return Fetching(self.held, CHOICE, PartSources(OWN, lambda _: peers, self.tier, goes_on)).all([0])

    def content(self) -> bytes:
        """The file that the member holds now."""
        found = self.held.get(SaveId(ROUND, 0, 1))
        assert found is not None
        return self.held.path(found, 0).read_bytes()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path)
    yield made
    made.server.close()
    made.tier.drain.close()


def test_what_the_member_holds_is_asked_of_no_other(member: Member) -> None:
    own = make(member.held, WHOLE)
    make(member.theirs, WHOLE)
    member.server.close()
    assert member.fetch() == [own]


def test_a_peers_memory_comes_before_the_durable_directory(member: Member, tmp_path: Path) -> None:
    make(member.theirs, WHOLE)
    other = held_by(tmp_path / "other")
    member.stored(other, make(other, {"latest.pt": b"other"}))
    member.fetch()
    assert member.content() == b"whole"


def test_what_no_peer_holds_comes_from_the_durable_directory(member: Member, tmp_path: Path) -> None:
    other = held_by(tmp_path / "other")
    member.stored(other, make(other, WHOLE))
    member.fetch()
    assert member.content() == b"whole"


def test_what_a_peer_refuses_comes_from_the_durable_directory(member: Member) -> None:
    member.stored(member.theirs, make(member.theirs, WHOLE))
    member.server.use(draw("another secret"))
    member.fetch()
    assert member.content() == b"whole"


def test_what_no_source_has_whole_is_missing_with_each_reason(member: Member) -> None:
    manifest = make(member.theirs, WHOLE)
    member.stored(member.theirs, manifest)
    member.saves.stored()[0].file(0).write_bytes(b"wrong")
    member.server.use(draw("another secret"))
    with pytest.raises(MissingError, match=r"node 1: .*the durable directory: .*is not what was saved"):
        member.fetch()
    assert member.held.list() == ()


def test_a_fetch_ends_with_its_round(member: Member) -> None:
    make(member.theirs, WHOLE)
    with pytest.raises(MissingError):
        member.fetch(goes_on=lambda: False)
    with pytest.raises(PeerRefusedError, match="the round has ended"):
        copies.get(member.held, CHOICE, 0, ("127.0.0.1", member.server.port), OWN, Receiving(lambda: False))
    assert member.held.list() == ()


@pytest.fixture
def above(member: Member, tmp_path: Path) -> Iterator[tuple[HeldSaves, SaveServer, Peer]]:
    """The member above in the tree, which does not hold the save yet."""
    held = held_by(tmp_path / "above")
    server = SaveServer(held, "127.0.0.1")
    server.use(ABOVE)
    yield held, server, Peer(2, "127.0.0.1", server.port, "node", "above")
    server.close()


def test_a_member_waits_for_the_one_above_it_and_leaves_the_holder_alone(
    member: Member, above: tuple[HeldSaves, SaveServer, Peer]
) -> None:
    """What comes shows who was asked: the save of the holder has another content here."""
    make(member.theirs, {"latest.pt": b"other"})
    asked = 0

    def goes_on() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            make(above[0], WHOLE)
        return True

    member.fetch(above[2], goes_on=goes_on)
    assert member.content() == b"whole"


def test_a_member_whose_upper_one_is_gone_asks_the_holder(
    member: Member, above: tuple[HeldSaves, SaveServer, Peer]
) -> None:
    make(member.theirs, WHOLE)
    above[1].close()
    member.fetch(above[2])
    assert member.content() == b"whole"


def test_a_holder_that_refuses_at_first_is_asked_again(member: Member) -> None:
    make(member.theirs, WHOLE)
    member.server.use(draw("another secret"))
    asked = 0

    def goes_on() -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            member.server.use(THEIRS)
        return True

    member.fetch(goes_on=goes_on)
    assert member.content() == b"whole"
