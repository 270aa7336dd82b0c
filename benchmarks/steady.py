"""What a pod's agent costs while its workers train: real agents of `pytorchjob run`, workers that report and rest."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import exact_cpu_seconds
from benchmarks.table import Row, load, spread

_BIN = Path(sys.executable).parent
_MEMBERS = 3
_LIMIT_SECONDS = 120.0
_SETTLE_SECONDS = 35.0
"""A round is looked at each second until it is 30 s old."""
_NAME = "rest.py"
_AGENT = re.compile("pytorchjob[-_]agent")
_SCRIPT = """
import os, sys, time
import pytorchjob_agent

for step in range(1_000_000):
    pytorchjob_agent.progress(step, 1_000_000, loss=0.5)
    if step == 1:
        open(f"{sys.argv[1]}/{os.environ['RANK']}", "w").close()
    time.sleep(0.1)
"""


async def measure(seconds: float) -> list[Row]:
    """CPU time of all processes of each agent, its workers left out."""
    return await asyncio.to_thread(_measure, seconds)


def _measure(seconds: float) -> list[Row]:
    before = load()
    with tempfile.TemporaryDirectory() as name, _job(Path(name)) as pid:
        _wait(Path(name))
        agents = [family(agent, _NAME) for agent in _agents(pid)]
        used = [sum(map(exact_cpu_seconds, family)) for family in agents]
        time.sleep(seconds)
        shares = [
            (sum(map(exact_cpu_seconds, family)) - first) / seconds * 100
            for family, first in zip(agents, used, strict=True)
        ]
    return [
        Row(
            f"an agent's CPU while its workers train, {_MEMBERS} members, over {seconds:g} s",
            spread(shares, "% of a core"),
            "",
            "",
            "< 0.1 % of a core",
            f"python -m benchmarks steady --seconds {seconds:g}",
            f"{before} to {load()}",
            {"ours": shares},
        )
    ]


@contextmanager
def _job(folder: Path) -> Iterator[int]:
    """`pytorchjob run` of an elastic job: its process."""
    (folder / _NAME).write_text(_SCRIPT)
    (folder / "job.json").write_text(json.dumps(_body(folder)))
    command = [str(_BIN / "pytorchjob"), "run", "-f", str(folder / "job.json")]
    env = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}"}
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _body(folder: Path) -> dict[str, Any]:
    words = ["pytorchjob-agent", "run", "--", str(folder / _NAME), str(folder)]
    container = {"name": "pytorch", "image": "none", "command": words}
    worker = {"replicas": _MEMBERS, "template": {"spec": {"containers": [container]}}}
    elastic = {"minReplicas": _MEMBERS, "maxReplicas": _MEMBERS}
    spec = {"nprocPerNode": "1", "elasticPolicy": elastic, "pytorchReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "steady"}, "spec": spec}


def _wait(folder: Path) -> None:
    """Until all workers train and everything that starts with them has come to rest."""
    end = time.monotonic() + _LIMIT_SECONDS
    while not all((folder / str(rank)).exists() for rank in range(_MEMBERS)):
        assert time.monotonic() < end, "the workers did not start"
        time.sleep(0.2)
    time.sleep(_SETTLE_SECONDS)


def _agents(pid: int) -> list[int]:
    """The first process of each replica."""
    found = [agent for supervisor in _children(pid) for agent in _children(supervisor) if _AGENT.search(_words(agent))]
    assert len(found) == _MEMBERS, found
    return found


def family(pid: int, script: str) -> list[int]:
    """A process and all below it that do not run this script: no workers."""
    below = [process for child in _children(pid) for process in family(child, script)]
    words = _words(pid)
    return below if script in words and not _AGENT.search(words) else [pid, *below]


def _children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(number) for thread in threads for number in thread.read_text().split()]


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
