"""How long commands of `pytorchjob` take from their start to their end, and kubectl for the same, in turns.

The API server is real, without nodes and without an operator. It has one job, whose pods do not exist.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cluster import Cluster, cluster, job
from benchmarks.table import Row, load, ratio, spread

_OURS = [sys.executable, "-m", "pytorchjob"]
_JOB = "digits"
_FILE = "examples/digits/pytorchjob.yaml"
_ROOT = Path(__file__).parents[1]
_LIMIT_SECONDS = 60
_CALLS = (
    (["--help"], ["--help"]),
    (["completion", "bash"], ["completion", "bash"]),
    (["events", _JOB], ["events", "--for", f"pytorchjob/{_JOB}"]),
    (["list"], ["get", "pytorchjobs"]),
    (["logs", _JOB], ["logs", f"{_JOB}-master-0"]),
    (["plan", _FILE], ["create", "--dry-run=client", "-o", "yaml", "-f", _FILE]),
    (["status", _JOB], ["describe", "pytorchjob", _JOB]),
    (["submit", "--dry-run", _FILE], ["create", "--dry-run=server", "-f", _FILE]),
    (["validate", _FILE], ["create", "--dry-run=client", "-f", _FILE]),
    (["version"], ["version"]),
)
"""Calls that change nothing, and kubectl's for the same."""


async def measure(repeat: int) -> list[Row]:
    """The wall time of each command."""
    async with cluster(nodes=0) as stand:
        namespace = stand.namespace()
        await stand.submit(job(namespace, _JOB, 2))
        kubectl = [str(stand.plane.binaries / "kubectl"), "-n", namespace]
        before = load()
        rows = []
        for ours, theirs in _CALLS:
            pair = await _pair([*_OURS, *ours], [*kubectl, *theirs], repeat, _environment(stand, namespace))
            rows.append(_row(ours, theirs, pair, f"python -m benchmarks start --repeat {repeat}", before))
        return rows


def _environment(stand: Cluster, namespace: str) -> dict[str, str]:
    """Of both programs; the namespace is in the kubeconfig, as it is for a person."""
    config = Path(tempfile.mkdtemp(dir=stand.directory)) / "kubeconfig"
    config.write_text(stand.plane.kubeconfig.read_text())
    env = {**os.environ, "KUBECONFIG": str(config), "PYTHONPATH": str(_ROOT / "operator")}
    done = stand.plane.kubectl(
        "config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={config}"
    )
    assert done.returncode == 0, done.stderr
    return env


async def _pair(
    ours: Sequence[str], theirs: Sequence[str], repeat: int, env: dict[str, str]
) -> tuple[list[float], list[float]]:
    pair: tuple[list[float], list[float]] = ([], [])
    for command in (ours, theirs):
        await _seconds(command, env)  # fills the page cache and writes the byte code
    for _ in range(repeat):
        for command, seconds in zip((ours, theirs), pair, strict=True):
            seconds.append(await _seconds(command, env))
    return pair


def _row(ours: list[str], theirs: list[str], pair: tuple[list[float], list[float]], command: str, before: str) -> Row:
    what = " ".join(["pytorchjob", *ours])
    return Row(
        f"start to end: `{what}`",
        spread(pair[0]),
        f"{spread(pair[1])} `{' '.join(['kubectl', *theirs])}`",
        ratio(*pair),
        "0.25 s",
        command,
        f"{before} to {load()}",
        {"ours": pair[0], "kubectl": pair[1]},
    )


async def _seconds(command: Sequence[str], env: dict[str, str]) -> float:
    started = time.monotonic()
    await asyncio.to_thread(subprocess.run, command, cwd=_ROOT, env=env, capture_output=True, timeout=_LIMIT_SECONDS)
    return time.monotonic() - started
