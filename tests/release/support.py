"""A copy of what the steps of a release work on, with programs that only write down their calls."""

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("release", "charts", "crds", "manifests", "examples", "requirements")
FILES = (
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "docs/installing.md",
    "pyproject.toml",
    "operator/pytorchjob_agent/__init__.py",
)
NEEDED = ("bash", "dirname", "env")
BUILD = "e2e/cluster/images.sh"


@dataclass(frozen=True)
class Done:
    """How a step ended."""

    status: int
    output: str
    error: str

    @property
    def sentence(self) -> str:
        """What is wrong, in one line."""
        return self.error.partition("\n")[0].removeprefix("error: ")


class Checkout:
    """A checkout of its own, in which a step may write."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkout"
        self.programs = folder / "bin"
        self.docker = folder / "docker"
        for made in (self.programs, self.docker):
            made.mkdir()
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.path / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.path / name)
        for name in NEEDED:
            self.link(name)
        self.stub(BUILD.rpartition("/")[2], at=self.path / BUILD)

    def link(self, name: str, target: Path | None = None) -> None:
        """Put a program of this machine into the PATH of the steps."""
        found = target or shutil.which(name)
        assert found, f"{name} is missing"
        (self.programs / name).symlink_to(found)

    def stub(self, name: str, then: str = "", at: Path | None = None) -> None:
        """Put a program there that writes down its call, and then runs these lines of bash."""
        path = at or self.programs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"$FAKE_DOCKER/calls"\n{then}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def fake_docker(self) -> None:
        """Put the fake of Docker into the PATH of the steps."""
        path = self.programs / "docker"
        path.write_text(f'#!/bin/bash\nexec {sys.executable} -S {ROOT}/tests/release/fake_docker.py "$@"\n')
        path.chmod(0o755)

    def git(self, *arguments: str) -> None:
        """Run git in the checkout, which is a repository after `init`."""
        who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *who, *arguments], cwd=self.path, check=True, capture_output=True)

    def run(self, step: str, *arguments: str, **env: str) -> Done:
        """Run a step, with nothing in its environment but what is given."""
        given = {"PATH": str(self.programs), "HOME": str(self.path.parent), "FAKE_DOCKER": str(self.docker), **env}
        given |= {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}
        command = [sys.executable, "-m", f"release.{step}", *arguments]
        done = subprocess.run(
            command, cwd=self.path, env=given, capture_output=True, text=True, timeout=100, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def calls(self, start: str = "") -> list[str]:
        """The calls of programs so far, those that begin so."""
        file = self.docker / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(start)]

    def text(self, path: str) -> str:
        """A file of the checkout."""
        return (self.path / path).read_text()
