"""Small jobs as YAML files, and `pytorchjob run` as a process to talk to."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.waiting import SECONDS, until

ROOT = Path(__file__).parents[2]


def role(command: list[str], replicas: int = 1, policy: str = "Never", **container: Any) -> dict[str, Any]:
    main = {"name": "pytorch", "image": "none", "command": command, **container}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [main]}}}


def python(code: str, **options: Any) -> dict[str, Any]:
    return role(["python", "-uc", code], **options)


def job(
    name: str = "tiny",
    elastic: dict[str, Any] | None = None,
    run_policy: dict[str, Any] | None = None,
    **roles: dict[str, Any],
) -> dict[str, Any]:
    spec: dict[str, Any] = {"pytorchReplicaSpecs": roles}
    if elastic:
        spec["elasticPolicy"] = elastic
    if run_policy:
        spec["runPolicy"] = run_policy
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def write(path: Path, *jobs: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(jobs, sort_keys=False))
    return path


class Run:
    """One `pytorchjob` process."""

    def __init__(self, directory: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self._out, self._err = directory / f"out-{id(self)}", directory / f"err-{id(self)}"
        env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "TMPDIR": str(directory), **(env or {})}
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytorchjob", *arguments],
                cwd=directory,
                env=env,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self) -> int:
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running:\n{self.out}\n{self.err}") from None

    def until(self, says: str, times: int = 1) -> None:
        until(lambda: (self.out + self.err).count(says) >= times or self.process.poll() is not None)
        assert (self.out + self.err).count(says) >= times, self.out + self.err

    def pids(self) -> list[int]:
        """The process ids that replicas have printed as `pid=N`."""
        return [int(line.partition("pid=")[2].split()[0]) for line in self.out.splitlines() if "pid=" in line]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def conditions(self) -> list[tuple[str, str]]:
        return [(condition["type"], condition["status"]) for condition in json.loads(self.out)["status"]["conditions"]]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
