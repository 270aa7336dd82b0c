"""The workflows run only what this repository has and tests: `make` targets and programs of release/."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TESTS = "".join(path.read_text() for path in sorted((ROOT / "tests/release").glob("test_*.py")))
PROGRAMS = sorted(path.stem for path in (ROOT / "release").glob("*.py") if '__name__ == "__main__"' in path.read_text())
_MAKE = re.compile(r"make ([a-z0-9-]+)")
_PROGRAM = re.compile(r"python3? -m release\.([a-z]+)")
_PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in parsed(path)["jobs"].values():
        yield from job["steps"]


def commands() -> Iterator[Any]:
    """Each line of each `run`, named by workflow."""
    for path in WORKFLOWS:
        for step in steps(path):
            for line in step.get("run", "").splitlines():
                yield pytest.param(line, id=f"{path.stem}: {line}")


def targets() -> set[str]:
    """The targets that `make help` lists, which are those that people use."""
    makefiles = [ROOT / "Makefile", *ROOT.glob("*/*.mk"), *ROOT.glob("e2e/cluster/*.mk")]
    return {name for path in makefiles for name in re.findall(r"^([a-z0-9-]+):.*## ", path.read_text(), re.MULTILINE)}


def test_there_are_checks_and_a_release() -> None:
    assert [path.name for path in WORKFLOWS] == ["checks.yml", "release.yml"]
    # YAML 1.1 reads the key `on` as a truth value.
    assert parsed(WORKFLOWS[1])[True] == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("line", [*commands()])
def test_a_command_is_a_target_or_a_program_that_exists(line: str) -> None:
    if target := _MAKE.fullmatch(line):
        assert target[1] in targets()
    else:
        program = _PROGRAM.fullmatch(line)
        assert program is not None, f"neither a make target nor a program of release/: {line}"
        assert program[1] in PROGRAMS


def test_every_program_of_a_release_is_run_by_a_test() -> None:
    assert len(PROGRAMS) >= 8
    assert [name for name in PROGRAMS if f'run("{name}"' not in TESTS] == []


@pytest.mark.parametrize("name", ["push", "chart", "package", "publish", "check", "login"])
def test_the_release_runs_every_program_that_makes_one(name: str) -> None:
    lines = [line for step in steps(WORKFLOWS[1]) for line in step.get("run", "").splitlines()]
    recipes = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "-o", "out/package", *_of_make(lines)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    called = {*_PROGRAM.findall("\n".join(lines)), *re.findall(r"-m release\.([a-z]+)", recipes)}
    script = (ROOT / "install/install.sh").read_text()
    assert name in called or (name == "push" and "install.sh push" in recipes and "release.push" in script)


def _of_make(lines: list[str]) -> list[str]:
    return [found[1] for line in lines if (found := _MAKE.fullmatch(line))]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_actions_by_commit_and_names_their_version(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [name for name in used if not _PINNED.fullmatch(name)] == []
    for line in path.read_text().splitlines():
        assert "uses:" not in line or re.search(r" # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_puts_nothing_from_outside_into_a_command(path: Path) -> None:
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []
    assert parsed(path)["permissions"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_no_registry(path: Path) -> None:
    hosts = re.findall(r"\b[\w-]+(?:\.[\w-]+)*\.(?:io|com|dev|org|net)\b", path.read_text())
    assert {*hosts} <= {"registry.example.com"}


def test_the_release_takes_the_registry_from_a_variable() -> None:
    (job,) = parsed(WORKFLOWS[1])["jobs"].values()
    assert job["env"]["REGISTRY"] == "${{ vars.REGISTRY }}"
