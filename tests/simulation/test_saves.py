"""The workers of a round never start from unequal saves, and never from an older one than a member offers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves import round_start
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.round_start import Start, StartKind, decide
from pytorchjob_agent.saves.save_agreement import SaveAgreement
from tests.simulation.saves import Pod, Schedule, violations


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


def _drops_before_copies(self: Schedule, id_: RoundId, owner: int, number: int, pod: Pod) -> None:
    _hold(self, id_, owner, number, pod)
    for old in [each for each in pod.held if pod.steps[each] < self.step]:
        del pod.held[old], pod.steps[old]


def _keeps_two(self: Schedule, id_: RoundId, new: int) -> None:
    """A part of a whole save goes for two later ones that are not whole."""


_hold = Schedule._hold


@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        pytest.param(SaveAgreement, "confirm", _ignores_failures, id="workers start although a member has no files"),
        pytest.param(round_start, "decide", _oldest, id="an older save is chosen"),
        pytest.param(round_start, "decide", _keeps_rests, id="rests of a cut save stay at one member"),
        pytest.param(Schedule, "_hold", _drops_before_copies, id="an older save is dropped before the newer is whole"),
        pytest.param(Schedule, "_needed", _keeps_two, id="later saves that are not whole replace a whole one"),
        pytest.param(Start, "needed_by", _own_parts_alone, id="a member that saves nothing fetches nothing"),
    ],
)
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, defect: object) -> None:
    monkeypatch.setattr(owner, name, defect)
    assert any(True for _ in violations(range(1000)))
