from collections.abc import Callable
from pathlib import Path

import pytest

from pytorchjob.local.image_paths import mapped, problems, read_map
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import Run, job, role

MAPS = [("/workspace", "/home/me"), ("/data", "/mnt/d")]


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("/workspace/train.py", "/home/me/train.py"),
        ("/workspace", "/home/me"),
        ("--config=/workspace/a.yaml", "--config=/home/me/a.yaml"),
        ("cd /workspace && python a.py --data '/data/x'", "cd /home/me && python a.py --data '/mnt/d/x'"),
        ("/workspaces/train.py", "/workspaces/train.py"),
        ("/other/workspace/train.py", "/other/workspace/train.py"),
        ("train.py", "train.py"),
    ],
)
def test_a_path_of_the_image_is_one_of_this_machine(text: str, here: str) -> None:
    assert mapped(text, MAPS) == here


@pytest.mark.parametrize(
    ("command", "there", "named"),
    [
        (["python", "/workspace/train.py"], ["train.py"], "--map /workspace=."),
        (["python", "/workspace/src/train.py"], ["src/train.py"], "--map /workspace=."),
        (["torchrun", "--", "/app/train.py"], [], "--map /app=FOLDER"),
        (["python", "/workspace/train.py"], ["/workspace/train.py"], ""),
        (["python", "train.py"], [], ""),
        (["python", "-m", "x", "--code-out", "/tmp/made.py"], [], ""),
        (["python", "$(DIR)/train.py"], [], ""),
    ],
)
def test_a_script_of_the_image_is_named_with_the_option(command: list[str], there: list[str], named: str) -> None:
    found = problems(PyTorchJob.model_validate(job(Worker=role(command))), (), there.__contains__)
    assert [named in words for _, words in found] == ([True] if named else [])


@pytest.mark.parametrize("text", ["", "/a", "a=b", "/a="])
def test_a_map_needs_both_folders(text: str) -> None:
    with pytest.raises(ValueError, match="IMAGE=HERE"):
        read_map(text)


@pytest.mark.parametrize(("options", "status"), [((), 2), (("--map", "/workspace=."), 0), (("--map", "workspace"), 2)])
def test_a_script_of_the_image_runs_from_its_folder_here(
    start: Callable[..., Run], tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    (tmp_path / "hello.py").write_text("import sys; sys.exit(sys.argv[1:] != ['--out=x'])")
    run = start(job(Worker=role(["python", "/workspace/hello.py", "--out=x"], workingDir="/workspace")), *options)
    assert run.wait() == status
