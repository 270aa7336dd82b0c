"""The workers of a round never start from unequal saves, and never from an older one than a member offers."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves import round_start
from pytorchjob_agent.saves.held_saves import HeldSave, SaveId
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.retention import Known
from pytorchjob_agent.saves.round_start import Start, StartKind, decide
from pytorchjob_agent.saves.save_agreement import SaveAgreement
from tests.simulation import saves
from tests.simulation.saves import violations


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_no_life_of_a_job_starts_workers_from_unequal_or_older_saves(first: int) -> None:
    assert [*violations(range(first, first + 500))] == []


def _ignores_failures(self: SaveAgreement, failure: str) -> None:
    """A member starts whatever the others report."""


def _oldest(offers: Sequence[Peer], round_: RoundId) -> Start:
    return decide([replace(offer, held=offer.held[:1]) for offer in offers], round_)


def _keeps_rests(offers: Sequence[Peer], round_: RoundId) -> Start:
    start = decide(offers, round_)
    return Start(StartKind.NOTHING) if start.kind is StartKind.SET_ASIDE else start


def _own_parts_alone(self: Start, rank: int, size: int) -> list[int]:
    return [owner for owner in self.parts if owner == rank]


def _newest_two(held: Collection[HeldSave], known: Known) -> set[SaveId]:
    """Two later saves that are not whole replace a whole one."""
    owners = {save.id.owner for save in held}
    return {id_ for owner in owners for id_ in sorted(save.id for save in held if save.id.owner == owner)[-2:]}


@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        pytest.param(SaveAgreement, "confirm", _ignores_failures, id="workers start although a member has no files"),
        pytest.param(round_start, "decide", _oldest, id="an older save is chosen"),
        pytest.param(round_start, "decide", _keeps_rests, id="rests of a cut save stay at one member"),
        pytest.param(saves, "needed", _newest_two, id="later saves that are not whole replace a whole one"),
        pytest.param(Start, "needed_by", _own_parts_alone, id="a member that saves nothing fetches nothing"),
    ],
)
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, defect: object) -> None:
    monkeypatch.setattr(owner, name, defect)
    assert any(True for _ in violations(range(1000)))
