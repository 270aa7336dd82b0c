"""What is taken as a save from one moment to the next, on real files."""

import os
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves import directory, naming
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.recognition import SeenFile
from pytorchjob_agent.saves.taking import NotTakenError, OnPiece, Taking, TornError, Writer
from tests.agent.saves.test_copies import held_by


class Script:
    """The files that a script has, and the saves that its agent takes of them."""

    def __init__(self, folder: Path, members: int) -> None:
        self.held: HeldSaves = held_by(folder)
        self.taking = Taking(self.held, Writer("job", RoundId(1, 1), 0, members, members), {})

    def write(self, *names: str) -> None:
        for name in names:
            new = self.held.root / f"{name}.new"
            new.write_bytes(os.urandom(100))
            new.replace(self.held.root / name)

    def units(self) -> dict[str, tuple[SeenFile, ...]]:
        """All files, each of them whole."""
        units: dict[str, tuple[SeenFile, ...]] = {}
        for file in directory.read(self.held.root):
            name = naming.unit_of(file.path)
            units[name] = (*units.get(name, ()), file)
        return units

    def take(self, on_piece: OnPiece = lambda _: None) -> Manifest | None:
        """Take them."""
        return self.taking.take(self.units(), on_piece)

    def restored(self) -> None:
        """What is there comes from another pod, and this agent has not seen how it was written."""
        self.taking = Taking(self.held, Writer("job", RoundId(1, 1), 0, 1, 1), self.units())

    def names(self) -> list[str]:
        """The files of the newest save."""
        newest = self.held.newest(RoundId(1, 1), 0)
        return [] if newest is None else sorted(file.path for file in newest.files)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path / "own", 1)


def test_what_is_unchanged_is_no_new_save(script: Script) -> None:
    script.write("a.pt")
    assert script.take() is not None
    assert script.take() is None


def test_a_deleted_file_is_in_no_later_save(script: Script) -> None:
    script.write("step-1.pt", "step-2.pt")
    assert script.take() is not None
    (script.held.root / "step-2.pt").unlink()
    assert script.take() is not None
    assert script.names() == ["step-1.pt"]


def test_one_of_two_files_that_belong_together_is_no_save(script: Script) -> None:
    for _ in range(2):
        script.write("model.pt", "optimizer.pt")
        assert script.take() is not None
    script.write("model.pt")
    assert script.take() is None
    script.write("optimizer.pt")
    assert script.take() is not None


def test_an_agent_in_a_new_pod_awaits_both_files_that_it_has_restored(script: Script) -> None:
    script.write("model.pt", "optimizer.pt")
    script.restored()
    script.write("model.pt")
    assert script.take() is None
    script.write("optimizer.pt")
    assert script.take() is not None


def test_a_file_that_changes_while_it_is_read_is_not_held(script: Script) -> None:
    script.write("a.pt")

    def overwrite(_: float) -> None:
        with (script.held.root / "a.pt").open("r+b") as file:
            file.write(b"other")
        os.utime(script.held.root / "a.pt", ns=(1, 1))

    with pytest.raises(TornError, match="has changed"):
        script.take(overwrite)
    assert script.names() == []


def test_parts_of_a_name_that_returns_are_of_no_save(tmp_path: Path) -> None:
    script = Script(tmp_path / "own", 2)
    for name in ("step-1-rank0.pt", "step-2-rank0.pt"):
        script.write(name)
        assert script.take() is not None
    script.write("step-1-rank0.pt")
    with pytest.raises(NotTakenError, match="put the step into the name"):
        script.take()
