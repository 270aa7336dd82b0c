"""The Python package: what is in it, and its commands in a fresh environment."""

import os
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pytorchjob_agent import __version__
from release.package import contents, missing, python_version, surplus
from tests.release.support import ROOT, Checkout

DIGITS = ROOT / "examples/digits/pytorchjob.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with the whole source, after `make package`."""
    checkout = Checkout(tmp_path_factory.mktemp("built"))
    source = "\n".join(str(path.relative_to(ROOT)) for path in (ROOT / "operator").rglob("*") if _is_source(path))
    for name in source.splitlines():
        (checkout.path / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout.path / name).write_bytes((ROOT / name).read_bytes())
    done = checkout.run("package")
    assert done.status == 0, done.error
    return checkout


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def archive(built: Checkout, pattern: str) -> Path:
    (found,) = (built.path / "out/release/python").glob(pattern)
    return found


def test_wheel_and_source_have_the_version(built: Checkout) -> None:
    assert archive(built, "*.whl").name == f"pytorchjob-{python_version(__version__)}-py3-none-any.whl"
    assert archive(built, "*.tar.gz").name == f"pytorchjob-{python_version(__version__)}.tar.gz"


def test_the_source_archive_has_the_source_and_neither_tests_nor_figures(built: Checkout) -> None:
    folders = {name.split("/")[1] for name in contents(archive(built, "*.tar.gz"))}
    assert {"operator", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= folders
    assert not {"tests", "e2e", "benchmarks", "docs"} & folders


def test_the_wheel_has_every_module_and_nothing_else(built: Checkout) -> None:
    names = contents(archive(built, "*.whl"))
    source = {str(path.relative_to(ROOT / "operator")) for path in (ROOT / "operator").rglob("*.py")}
    assert source <= {*names}
    assert (missing(names), surplus(names)) == ([], [])


def test_what_a_wheel_lacks_or_has_too_much_is_noticed() -> None:
    names = ["pytorchjob/cli.py", "pytorchjob_agent/__main__.py", "tests/x.py", "x.dist-info/licenses/LICENSE"]
    assert missing(names) == ["pytorchjob_operator/crd/pod_template.json"]
    assert surplus(names) == ["tests/x.py"]


@pytest.fixture(scope="module")
def installed(built: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel and what its extra `cli` brings, nothing of it downloaded."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    uv = str(Path(sys.executable).with_name("uv"))
    wheel = str(archive(built, "*.whl"))
    for command in (
        [uv, "venv", "--quiet", "--offline", "--python", sys.executable, str(venv)],
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(venv), wheel],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
    packages = packages_of(venv)
    link_needed(PathDistribution(next(packages.glob("pytorchjob-*.dist-info"))), "cli", packages, set())
    return venv / "bin"


def packages_of(venv: Path) -> Path:
    """Where an environment has its packages."""
    return next((venv / "lib").glob("python3.*/site-packages"))


def link_needed(package: Distribution, extra: str, into: Path, known: set[str]) -> None:
    """Link what a package asks for, and what that asks for, from the environment of these tests."""
    for line in package.requires or ():
        needed = Requirement(line)
        if needed.name in known or (needed.marker and not needed.marker.evaluate({"extra": extra})):
            continue
        known.add(needed.name)
        found = distribution(needed.name)
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (into / name).exists():
                (into / name).symlink_to(Path(str(found.locate_file(name))))
        link_needed(found, "", into, known)


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command as a user runs it: in another folder, with no source on Python's path."""
    env = {"PATH": os.environ["PATH"], "HOME": str(installed)}
    command = [str(installed / words[0]), *words[1:]]
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=60, check=False)


COMMANDS = [
    pytest.param(["pytorchjob", "--help"], "validate", id="the index"),
    pytest.param(["pytorchjob", "--version"], __version__, id="the version"),
    pytest.param(["pytorchjob", "validate", str(DIGITS)], "digits is valid", id="a file is checked"),
    pytest.param(["pytorchjob", "plan", str(DIGITS)], "digits-master-0", id="a plan is made"),
    pytest.param(["pytorchjob-agent", "--help"], "run", id="the agent, without torch"),
]


@pytest.mark.parametrize(("words", "printed"), COMMANDS)
def test_in_a_fresh_environment(installed: Path, words: list[str], printed: str) -> None:
    done = run(installed, *words)
    assert (done.returncode, printed in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_extra_brings_neither_torch_nor_the_operators_framework(installed: Path) -> None:
    names = {path.name for path in packages_of(installed.parent).iterdir()}
    assert {"kubernetes", "rich"} <= names
    assert not {"torch", "kopf"} & names
