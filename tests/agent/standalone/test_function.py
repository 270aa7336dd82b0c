"""Functions travel to the workers, values come back."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.standalone import function
from tests.agent import functions

ROOT = Path(__file__).parents[3]
NO_CLOUDPICKLE = ("cloudpickle", "pyspark.cloudpickle")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without cloudpickle."""
    for name in NO_CLOUDPICKLE:
        monkeypatch.setitem(sys.modules, name, None)


def loaded(directory: Path) -> Any:
    return pickle.loads((directory / "call.pickle").read_bytes())


def test_a_modules_function_needs_no_cloudpickle(plain: None, tmp_path: Path) -> None:
    function.save(functions.seen, ["RANK"], tmp_path)
    assert loaded(tmp_path) == (functions.seen, ("RANK",))
    assert json.loads((tmp_path / "call.json").read_text())["pickler"] == "pickle"


def test_a_closure_travels_with_cloudpickle(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    number = 41
    function.save(lambda one: number + one, [1], tmp_path)
    code, args = loaded(tmp_path)
    assert code(*args) == 42


@pytest.mark.parametrize(
    ("what", "args", "words"),
    [
        pytest.param(lambda: 1, [], "<lambda> and its args cannot be pickled for the workers", id="a closure"),
        pytest.param(functions.meet, [lambda: 1], "what: meet and its args cannot be", id="a closure among the args"),
        pytest.param(functions.meet, ["__main__"], "what: meet or one of its args is defined in __main__", id="main"),
    ],
)
def test_without_cloudpickle(
    plain: None, what: Callable[..., Any], args: list[Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ContractError, match=f"{words}.*install cloudpickle, or define it at the top level of a module"):
        function.save(what, args, tmp_path)


def test_the_workers_import_what_the_caller_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    function.save(functions.seen, [], tmp_path)
    assert json.loads((tmp_path / "call.json").read_text())["path"] == [os.getcwd(), *sys.path[1:]]


def worker(directory: Path, rank: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytorchjob_agent.standalone.function", str(directory)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "RANK": str(rank)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.torch
def test_values_come_back_by_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    function.save(functions.seen, ["RANK"], tmp_path)
    for rank in (10, 9):
        done = worker(tmp_path, rank)
        assert done.returncode == 0, done.stderr
    assert function.values(tmp_path) == {9: {"RANK": "9"}, 10: {"RANK": "10"}}
    assert list(function.values(tmp_path)) == [9, 10]


@pytest.mark.torch
def test_a_value_that_cannot_come_back_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    function.save(open, [str(tmp_path / "file"), "w"], tmp_path)
    assert "the value that rank 3 returned cannot be pickled for the caller" in worker(tmp_path, 3).stderr
