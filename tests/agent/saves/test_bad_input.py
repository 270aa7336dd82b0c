"""What saves are made of, in a shape that nobody should write: each is refused, or taken for nothing."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.rendezvous.extension import Extension, NotStartedError, OpenRound, OwnPod, RoundEndedError
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves import directory, formats
from pytorchjob_agent.saves.held_saves import HeldSave, round_of
from pytorchjob_agent.saves.manifest import MOST_FILES, Manifest, id_of
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.round_saves import SAVES
from pytorchjob_agent.saves.round_start import Start
from pytorchjob_agent.saves.save_agreement import SaveAgreement
from tests.simulation.saves import Store

FILE = ["a.pt", 3, 1, "0" * 64, ""]


def manifest(*files: object) -> str:
    return json.dumps({"job": "job", "id": ["1.1", 0, 1], "writers": 1, "label": "a.pt", "files": [*files]})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[", id="no JSON"),
        pytest.param(manifest(), id="no files"),
        pytest.param(manifest(*[FILE] * (MOST_FILES + 1)), id="too many files"),
        pytest.param(manifest(["../a.pt", *FILE[1:]]), id="a file outside"),
        pytest.param(manifest([*FILE[:4], "/etc/passwd"]), id="a link that leads out"),
        pytest.param(manifest([*FILE[:3], "0" * 63, ""]), id="half a checksum"),
        pytest.param(manifest([*FILE[:2], 2**63, *FILE[3:]]), id="a time that no file has"),
        pytest.param(manifest(FILE, FILE), id="one name twice"),
    ],
)
def test_a_list_of_files_is_refused(text: str) -> None:
    Manifest.from_json(manifest(FILE))
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


@pytest.mark.parametrize("name", ["aside", "1.1_0", "1.1_0_x", "x_0_1", "1_0_1", "1.1.1.1_0_1"])
def test_a_folder_of_another_name_is_no_save(name: str) -> None:
    assert id_of(name) is None


@pytest.mark.parametrize("text", ["", "1", "1.x", "-1.1", "1.2.3.4"])
def test_a_text_that_names_no_round(text: str) -> None:
    assert round_of(text) is None


def tensors(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        pytest.param(tensors(b'{"a": {"data_offsets": [0, 4]}}') + b"1234", True, id="whole"),
        pytest.param(tensors(b'{"a": {"data_offsets": [0, 4]}}') + b"123", False, id="cut in its data"),
        pytest.param(tensors(b"{}", 3), False, id="cut in its header"),
        pytest.param(b"1234567", False, id="cut in its length"),
        pytest.param(tensors(b"[1]"), True, id="another header, which the library will refuse"),
        pytest.param(tensors(b"{"), True, id="no JSON, which the library will refuse"),
    ],
)
def test_whether_a_file_of_tensors_is_whole(content: bytes, whole: bool) -> None:
    tail = content[-formats.TAIL_BYTES :]
    assert formats.is_whole("a.safetensors", len(content), content, tail) is whole
    assert formats.is_proved("a.safetensors", len(content), content, tail) is whole
    assert not formats.is_proved("a.txt", len(content), content, tail), "its format shows nothing"


def test_a_directory_that_is_none_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(directory.DirectoryError, match="file cannot be read"):
        directory.read(tmp_path / "file")
    assert directory.read(tmp_path / "none") == []


def test_a_link_by_its_whole_path_is_read_as_one_inside_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.pt").touch()
    (tmp_path / "sub/last.pt").symlink_to(tmp_path / "sub/a.pt")
    assert {file.path: file.link for file in directory.read(tmp_path)} == {"sub/a.pt": "", "sub/last.pt": "a.pt"}


def store_of(values: Store, rank: int, size: int = 2) -> SignedStore:
    return SignedStore(values, Assigned(RoundId(1, 3), rank, size, rank, size, "127.0.0.1", 1, 0, secret="secret"))


def offer(rank: int, *held: HeldSave) -> Peer:
    return Peer(rank, "127.0.0.1", 1, "node", "directory", held)


def an_unknown_decision(values: Store) -> None:
    store_of(values, 0).write("start", "?")


def an_unknown_offer(values: Store) -> None:
    store_of(values, 0).write("saves/0", "?")
    store_of(values, 0).write("start", Start.from_json('["nothing", "", [], ""]').to_json())


def a_failure(values: Store) -> None:
    store_of(values, 0).write("failed", "the disk is full")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (an_unknown_decision, "rank 0's decision cannot be read"),
        (an_unknown_offer, "what node 0 offers cannot be read: its agent has another version"),
        (a_failure, "node 0: the disk is full"),
        (lambda _: None, "a member has published nothing for"),
    ],
)
def test_a_member_does_not_start_by_what_it_cannot_read(
    written: Callable[[Store], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytorchjob_agent.saves.save_agreement._OFFER_SECONDS", 0.05)
    values = Store()
    written(values)
    agreement = SaveAgreement(store_of(values, 1), lambda: True)

    def decide() -> None:
        agreement.decide(offer(1))
        agreement.others()

    with pytest.raises(NotStartedError, match=words):
        decide()


def test_a_member_waits_for_no_decision_of_a_round_that_is_over() -> None:
    agreement = SaveAgreement(store_of(Store(), 1), lambda: False)
    with pytest.raises(RoundEndedError):
        agreement.decide(offer(1))
    assert not agreement.goes_on()


def in_a_round(path: Path, secret: str) -> Extension:
    """The saves of an agent whose job has this directory, in a round of this member alone."""
    rules = CheckpointRules(str(path), 10**6)
    made = SAVES.create(OwnPod({CHECKPOINT: rules.to_json()}, "job", "127.0.0.1", 1))
    assigned = Assigned(RoundId(1, 3), 0, 1, 0, 1, "127.0.0.1", 1, 0, secret=secret)
    store = SignedStore(Store(), assigned)
    made.open(OpenRound(assigned, store, lambda: store, lambda: True))
    return made


def test_a_directory_that_is_a_file_keeps_no_save_and_lets_the_job_train(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    saves = in_a_round(tmp_path / "file", "secret")
    assert saves.problem.startswith("CheckpointDirectoryUnusable: no checkpoint is kept in memory")


def test_an_operator_that_gives_no_secret_has_no_copies(tmp_path: Path) -> None:
    saves = in_a_round(tmp_path, "")
    try:
        assert saves.problem == "no checkpoint is copied: this operator gives rounds no secret"
        assert saves.settled(ended=True), "a pod that leaves waits for nothing"
        assert saves.finished()
    finally:
        saves.close()
