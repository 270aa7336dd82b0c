"""What the steps share: places, running a program, failing in one sentence with the next step."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAME = "pytorchjob-operator"
"""The chart, its release and the first image."""
CHART = Path("charts") / NAME
OUT = Path("out/release")
"""Everything that a release consists of, below the repository's root."""
RECORD = OUT / "images.json"

Step = Callable[[Sequence[str], Mapping[str, str]], None]


class StepError(Exception):
    """A step cannot go on: what is wrong, and what to do about it."""

    def __init__(self, sentence: str, remedy: str = "", status: int = 1) -> None:
        super().__init__(sentence)
        self.remedy = remedy
        self.status = status


def main(step: Step) -> None:
    """Run a step with this process's arguments and environment; print a failure as one sentence and the next step."""
    os.chdir(ROOT)
    try:
        step(sys.argv[1:], os.environ)
    except StepError as failed:
        print(f"error: {failed}", file=sys.stderr)
        if failed.remedy:
            print(f"next: {failed.remedy}", file=sys.stderr)
        sys.exit(failed.status)


def have(program: str) -> bool:
    """Return whether a program is in PATH."""
    return shutil.which(program) is not None


def run(*words: str, stdin: str | None = None, remedy: str = "") -> str:
    """Run a program and return what it prints; `StepError` has its last line."""
    return run_bytes(*words, stdin=stdin, remedy=remedy).decode()


def run_bytes(*words: str, stdin: str | None = None, remedy: str = "") -> bytes:
    """Run a program and return the bytes that it prints; `StepError` has its last line."""
    try:
        done = subprocess.run(words, input=None if stdin is None else stdin.encode(), capture_output=True, check=False)
    except FileNotFoundError as missing:
        raise StepError(f"{words[0]} is missing", f"install {words[0]}, then run this again") from missing
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"exit status {done.returncode}"
        raise StepError(f"`{' '.join(words[:3])}` failed: {last}", remedy)
    return done.stdout


def succeeds(*words: str) -> bool:
    """Return whether a program ends well."""
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def show_run(*words: str, remedy: str = "") -> None:
    """Run a program whose output people see as it comes."""
    show(f"+ {' '.join(words)}")
    try:
        status = subprocess.run(words, check=False).returncode
    except FileNotFoundError as missing:
        raise StepError(f"{words[0]} is missing", f"install {words[0]}, then run this again") from missing
    if status:
        raise StepError(f"`{' '.join(words[:3])}` failed with exit status {status}; its output is above", remedy)


def show(text: str) -> None:
    """Print for people."""
    print(text, flush=True)


def write(path: Path, text: str) -> Path:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write a value as JSON that people can read."""
    return write(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_record() -> dict[str, Any]:
    """Return what `push` recorded."""
    if not RECORD.is_file():
        raise StepError(f"{RECORD} is missing: no images were pushed from here", "run `make push REGISTRY=...` first")
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record
