"""Install locked Python packages into a virtual environment: on a machine without NVIDIA GPUs, without those for GPUs.

    python install/packages.py .venv/bin/python requirements/dev.txt

TORCH chooses the build of PyTorch: `auto` (default), `cuda` (as it is locked), `cpu` (PyTorch's own build for CPUs).
`auto` is `cuda` if the machine has such a GPU, or does not run Linux, because elsewhere the locked build has no CUDA.
Otherwise it is `cpu`. If PyTorch's own index cannot be reached, the locked build comes without what it does not load.
Only uv knows that index; the wheel's hash is the index's own. All other packages have the hashes of the file.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

AUTO, CUDA, CPU = "auto", "cuda", "cpu"
NOT_LOADED = frozenset(
    {
        "cuda-bindings",
        "cuda-pathfinder",
        "cuda-toolkit",
        "nvidia-cuda-cccl",
        "nvidia-cusolver",
        "nvidia-nvjitlink",
        "nvidia-nvtx",
        "triton",
    }
)
"""Packages that the locked PyTorch does not load while no GPU is used; its libraries are linked with the others."""
SIZES = {"all": "3.0 GB", "lean": "2.4 GB"}
"""To fetch for the locked PyTorch and what it depends on, on Linux: the sum of the files' sizes, for MEASURED."""
MEASURED = "2.15.0"
_GPU = re.compile(r"^(?:nvidia-|cuda-|triton$)")
_DEVICE = re.compile(r"^nvidia\d+$")
_FIRST_LINE = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


def has_gpu(dev: Path = Path("/dev"), which: Callable[[str], str | None] = shutil.which) -> bool:
    """Whether this machine has an NVIDIA GPU that programs may use."""
    names = [entry.name for entry in dev.iterdir()] if dev.is_dir() else []
    return any(map(_DEVICE.match, names)) or which("nvidia-smi") is not None


def choose(wanted: str, platform: str, gpu: bool) -> str:
    """Return the build to install; raises ValueError for a word that is not a build."""
    if wanted not in (AUTO, CUDA, CPU):
        raise ValueError(f"TORCH={wanted} is not known: use {AUTO}, {CUDA} or {CPU}")
    if wanted != AUTO:
        return wanted
    return CPU if platform == "linux" and not gpu else CUDA


def without(text: str, unwanted: Callable[[str], bool]) -> str:
    """Return a requirements file without some packages, each with its hashes."""
    kept, keep = [], True
    for line in text.splitlines(keepends=True):
        found = _FIRST_LINE.match(line)
        if found:
            keep = not unwanted(found[1])
        if keep:
            kept.append(line)
    return "".join(kept)


def locked_version(text: str, package: str) -> str:
    """Return the version of a package in a requirements file; raises KeyError if the file does not have it."""
    versions = {found[1]: found[2] for line in text.splitlines() if (found := _FIRST_LINE.match(line))}
    return versions[package]


def main(python: str, requirements: str) -> int:
    """Install; return the exit status."""
    text = Path(requirements).read_text(encoding="utf-8")
    try:
        build = choose(os.environ.get("TORCH") or AUTO, sys.platform, has_gpu())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    uv = [str(Path(python).parent / "uv"), "pip", "install", "--python", python]
    if build == CUDA:
        _say(f"PyTorch as locked, {SIZES['all']} to fetch on Linux")
        return _run([*uv, "--require-hashes", "-r", requirements])
    version = locked_version(text, "torch")
    _say(f"no NVIDIA GPU: PyTorch {version} for CPUs (TORCH=cuda: the build for GPUs, {SIZES['all']} to fetch)")
    for_cpus = [*uv, "--no-deps", "--torch-backend", "cpu", f"torch=={version}"]
    problem = refusal([*for_cpus, "--dry-run"])
    if not problem and _run(for_cpus) == 0:
        return _install(uv, without(text, lambda name: name == "torch" or _GPU.match(name) is not None))
    why = f"it cannot be fetched from here ({problem or 'its download failed'})"
    _say(f"{why}: the build for GPUs without what CPUs never load, {SIZES['lean']} to fetch")
    return _install(uv, without(text, NOT_LOADED.__contains__))


def refusal(command: list[str]) -> str:
    """Return why a command of uv fails, in uv's words for the deepest cause; nothing if it succeeds."""
    env = {**os.environ, "UV_HTTP_RETRIES": "0"}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)  # noqa: S603 - as in _run
    lines = [line.strip().removeprefix("cause: ") for line in done.stderr.splitlines() if line.strip()]
    return (lines or [f"exit status {done.returncode}"])[-1] if done.returncode else ""


def _install(uv: list[str], text: str) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return _run([*uv, "--no-deps", "--require-hashes", "-r", file.name])


def _run(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode  # noqa: S603 - uv, with arguments of this file


def _say(text: str) -> None:
    print(f"packages: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
