"""The core of the agent does without any extension: its folder and its line may go, and nothing else has to change."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.extensions import create
from pytorchjob_agent.rendezvous.extension import Extension, Extensions, OwnPod, StartingWorkers
from tests.agent.starting import starting

ROOT = Path(__file__).parents[2]
EXTENSIONS = ("saves", "caches", "observers", "stragglers", "hangs", "shrinks")
MEMBERS = "tests/agent/rendezvous/test_members.py"
"""Real agents and a real coordinator: crashes, lost members, restarts."""


class Noted(Extension):
    """Notes its calls, and has a variable and a field."""

    def __init__(self, name: str, calls: list[str], problem: str = "", *, done: bool = True) -> None:
        self.name, self.calls, self.told, self.done = name, calls, problem, done

    @property
    def problem(self) -> str:
        return self.told

    def settled(self, *, ended: bool) -> bool:
        self.calls.append(self.name)
        return self.done

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        return [{self.name: str(local_rank)} for local_rank in range(starting.nproc)]

    def report(self, now: float, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {self.name: fields["step"]}


def test_all_extensions_hear_that_a_pod_leaves_and_the_last_one_decides() -> None:
    calls: list[str] = []
    first, second = Noted("first", calls, done=False), Noted("second", calls, "Full: no room")
    both = Extensions(first, second)
    assert not both.settled(ended=False)
    assert calls == ["first", "second"]
    assert both.problem == "Full: no room"
    first.done = True
    assert both.settled(ended=False)


def test_workers_get_the_variables_and_heartbeats_the_fields_of_all_extensions(tmp_path: Path) -> None:
    both = Extensions(Noted("first", []), Extension(), Noted("second", []))
    assert both.variables(starting(tmp_path, 2)) == [{"first": "0", "second": "0"}, {"first": "1", "second": "1"}]
    assert both.report(0.0, {"step": 7}) == {"first": 7, "second": 7}


def test_without_settings_there_is_nothing_to_do() -> None:
    found = create(OwnPod({}, "job", "127.0.0.1", 1))
    assert found.problem == ""
    assert found.finished()
    found.close()


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ContractError, match="PYTORCHJOB_CHECKPOINT"):
        create(OwnPod({"PYTORCHJOB_CHECKPOINT": "no"}, "job", "127.0.0.1", 1))


@pytest.mark.torch
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", EXTENSIONS)
def test_members_train_and_recover_without_an_extension(tmp_path: Path, name: str) -> None:
    for folder in ("operator", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    agent = tmp_path / "operator" / "pytorchjob_agent"
    shutil.rmtree(agent / name)
    lines = (agent / "extensions.py").read_text().splitlines()
    named = re.compile(rf"\b{name}\b|\b{name.upper()}\b")
    (agent / "extensions.py").write_text("\n".join(line for line in lines if not named.search(line)))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", MEMBERS]
    command += ["-m", "not needs_hangs"] * (name == "hangs")
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}/operator:{tmp_path}"},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
