"""A second program of a container does not join rounds that have ended: the container remembers the first one."""

import os
import tempfile
from pathlib import Path

import pytest

from pytorchjob_agent.command import finished_program
from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint

ENDPOINT = CoordinatorEndpoint("h", 1, "token", "job", "pod-0", 0, "uid")
ANOTHER = CoordinatorEndpoint("h", 1, "token", "job", "pod-0", 0, "uid-of-its-replacement")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_only_this_pod_has_finished() -> None:
    assert not finished_program.is_there(ENDPOINT)
    finished_program.remember(ENDPOINT)
    assert finished_program.is_there(ENDPOINT)
    assert not finished_program.is_there(ANOTHER)


def test_a_container_that_starts_again_begins_anew(tmp_path: Path) -> None:
    """Its first process leads another session, which lives as long as the container."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        finished_program.remember(ENDPOINT)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert list(tmp_path.iterdir())
    assert not finished_program.is_there(ENDPOINT)


def test_a_folder_that_cannot_be_written_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no-such-folder")
    finished_program.remember(ENDPOINT)
    assert not finished_program.is_there(ENDPOINT)
