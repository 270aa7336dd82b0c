"""kubectl as the tests use it: what a user would type, with bounded waits instead of sleeps."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import waiting
from tests.waiting import Story

JOB_LABEL = "training.kubeflow.org/job-name"
_SLOWER = 3
"""How much slower than two idle cores a machine may be. The waits' seconds are those of idle ones."""


@dataclass(frozen=True)
class Kubectl:
    """One namespace of one cluster."""

    program: str
    kubeconfig: Path
    namespace: str

    def __call__(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            self.command(*args), input=stdin, capture_output=True, text=True, timeout=300, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def command(self, *args: str) -> list[str]:
        """The whole command, for what runs beside the test."""
        return [self.program, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *args]

    def get(self, *args: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", *args, "-o", "json"))
        return found

    def job(self, name: str) -> dict[str, Any]:
        return self.get("pytorchjob", name)

    def pods(self, job: str) -> list[dict[str, Any]]:
        return list(self.get("pods", "-l", f"{JOB_LABEL}={job}")["items"])

    def children(self, job: str) -> list[str]:
        return self("get", "pods,services", "-l", f"{JOB_LABEL}={job}", "-o", "name").split()

    def conditions(self, job: str) -> dict[str, str]:
        """Type to status, in the order of the list."""
        status = self.job(job).get("status", {})
        return {condition["type"]: condition["status"] for condition in status.get("conditions", [])}

    def finish(self, job: str, seconds: float = 300) -> dict[str, str]:
        """Wait for the end of a job, and return its conditions; what went wrong is in the error."""
        until(lambda: {"Succeeded", "Failed"} & self.conditions(job).keys(), seconds, lambda: self.story(job))
        return self.conditions(job)

    def story(self, job: str) -> str:
        """What a person would look at when a job does not move."""
        described = self("describe", "pytorchjob", job, check=False)
        pods = self("get", "pods", "-o", "wide", check=False)
        events = self("get", "events", "--sort-by=.lastTimestamp", check=False)
        logs = [self("logs", f"pod/{pod['metadata']['name']}", "--tail=20", check=False) for pod in self.pods(job)]
        return "\n".join([described[-4000:], pods, events[-4000:], *logs])


def until(happened: Callable[[], object], seconds: float = 120, story: Story = "") -> None:
    """Poll the cluster until something is true; the story explains why it never was."""
    waiting.until(happened, _SLOWER * seconds, story, every=0.5)
