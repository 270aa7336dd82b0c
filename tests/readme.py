"""README's shell blocks, run as they are written, in a fresh clone."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRANSCRIPTS = ROOT / "out" / "readme"
LOCAL, CLUSTER, ITSELF = "Try it: one machine, no cluster", "On a cluster", "Prove it"
"""README's sections with shell blocks."""
REGISTRY = "registry.example.com/team"
"""What README's commands call the registry of the reader."""
_BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OURS = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL", "KUBECONFIG", "PROVIDER")


@dataclass(frozen=True)
class Done:
    """How a section's commands ended; the transcript has them with what they printed."""

    status: int
    transcript: str


def sections(page: str = "README.md") -> dict[str, list[str]]:
    """The shell blocks of a page by the heading above them; blocks of other languages are left out."""
    headings = re.split(r"^## (.*)\n", (ROOT / page).read_text(), flags=re.MULTILINE)[1:]
    found = {heading: _BLOCK.findall(_without_other_languages(text)) for heading, text in _pairs(headings)}
    return {heading: blocks for heading, blocks in found.items() if blocks}


def with_registry() -> list[str]:
    """README's commands for a cluster with a registry: its row of the table, then the job, with the pushed image."""
    [row] = [
        line for line in (ROOT / "README.md").read_text().splitlines() if f"make install REGISTRY={REGISTRY}" in line
    ]
    [block] = sections()[CLUSTER]
    _, _, job = block.partition("export KUBECONFIG=$PWD/out/kubeconfig\n")
    return [row.split("`")[1], *job.replace("-f examples/", "-f out/release/examples/").splitlines()]


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    return list(zip(texts[::2], texts[1::2], strict=True))


def _without_other_languages(text: str) -> str:
    return re.sub(r"^```(?!sh\n)\w+\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def clone(to: Path) -> Path:
    """Clone this repository, with what is not committed yet: nothing that was built here comes along."""
    _git("clone", "--quiet", str(ROOT), str(to))
    changed = _git("diff", "--name-only", "-z", "HEAD") + _git("ls-files", "--others", "--exclude-standard", "-z")
    for path in filter(None, changed.split("\0")):
        (to / path).unlink(missing_ok=True)
        if (ROOT / path).exists():
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, to / path)
    return to


def commit(checkout: Path) -> str:
    """The commit of a checkout, in short, and whether the checkout differs from it."""
    changed = _git("status", "--porcelain", at=checkout)
    return _git("rev-parse", "--short", "HEAD", at=checkout).strip() + (" with uncommitted changes" if changed else "")


def _git(*arguments: str, at: Path = ROOT) -> str:
    return subprocess.run(["git", "-C", str(at), *arguments], capture_output=True, text=True, check=True).stdout


def follow(heading: str, checkout: Path, *, seconds: float, programs: Path | None = None) -> Done:
    """Run a section's blocks in one shell that stops at the first failure; keeps the transcript in out/readme.

    `programs` is a folder with what README names as needed, for machines that have it nowhere else.
    """
    return execute(heading, "\n".join(sections()[heading]), checkout, seconds=seconds, programs=programs)


def execute(
    name: str, script: str, checkout: Path, *, seconds: float, programs: Path | None = None, **given: str
) -> Done:
    """Run lines as `follow` does, under a name for the transcript, with these variables."""
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != ROOT / ".venv/bin"]
    env = {key: value for key, value in os.environ.items() if key not in _OURS} | given
    env["PATH"] = os.pathsep.join([*path, *([str(programs)] if programs else [])])
    TRANSCRIPTS.mkdir(parents=True, exist_ok=True)
    transcript = TRANSCRIPTS / f"{re.sub('[^a-z]+', '-', name.lower())}.txt"
    # -v shows each line before it runs; a terminal is not there, so nothing waits for a key.
    command = ["bash", "-ev", "-c", script]
    with transcript.open("w") as out:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=seconds,
            check=False,
        )
    return Done(done.returncode, transcript.read_text())
