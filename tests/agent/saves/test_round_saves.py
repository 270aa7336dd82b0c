"""The checkpoints of one agent between two rounds, where its directory does not answer."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.contract.checkpoint_rules import CheckpointRules
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous.extension import NotStartedError, OpenRound
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves.held_saves import HeldSave, SaveId
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.round_saves import MemorySaves
from pytorchjob_agent.saves.save_agreement import SaveAgreement
from tests.agent.rendezvous.stores import Store
from tests.waiting import held_by_another_thread

ONE = Assigned(RoundId(1, 2), 1, 2, 1, 2, "127.0.0.1", 1, 0, secret="5ec2e7")
ZERO = replace(ONE, rank=0, first_rank=0)


@pytest.mark.parametrize(
    ("held", "starts"),
    [
        pytest.param((), True, id="nobody has a save"),
        pytest.param((HeldSave(SaveId(RoundId(1, 1), 0, 1), 7),), False, id="the others restore a save"),
    ],
)
def test_a_directory_that_hangs_keeps_no_round_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: tuple[HeldSave, ...], starts: bool
) -> None:
    monkeypatch.setattr("pytorchjob_agent.saves.round_saves._OFFER_SECONDS", 0.5)
    store, failed = Store(), list[NotStartedError]()
    saves = MemorySaves(CheckpointRules(str(tmp_path), 10**6), "job", "127.0.0.1", 1)

    def rank_0() -> None:
        agreement = SaveAgreement(SignedStore(store, ZERO), lambda: True)
        agreement.decide(Peer(0, "127.0.0.1", 1, "node", "directory", held))
        try:
            agreement.confirm("")
        except NotStartedError as error:
            failed.append(error)

    other = threading.Thread(target=rank_0)
    other.start()
    with held_by_another_thread(saves._held._lock):
        try:
            saves.open(OpenRound(ONE, SignedStore(store, ONE), lambda: SignedStore(store, ONE), lambda: True))
        except NotStartedError as error:
            failed.append(error)
    other.join()
    saves.close()
    assert "CheckpointDirectoryUnusable" in saves.problem
    assert len(failed) == (0 if starts else 2)
