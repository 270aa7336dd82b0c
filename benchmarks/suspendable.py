"""`pytorchjob run` for `goodput`: SIGHUP suspends the job and resumes it, and pods wait for a node.

python -m benchmarks.suspendable JOB.YAML

A local run ignores `runPolicy.suspend`, because its file has no API server that could change it. All else is that of a
cluster: the plan, the coordinator, the agents and their processes. A stand-in for the scheduler lets each new pod wait.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from pytorchjob.local import run_command
from pytorchjob.local.node import LocalNode
from pytorchjob.local.run_command import RunOptions
from pytorchjob.local.runner import Runner

WAIT_SECONDS = 4.0
"""For how long a new pod has no node."""
RUN_PID = "BENCHMARK_RUN_PID"
"""The variable by which the script finds the first process of its pod."""


class SlowNode(LocalNode):
    """A machine on which a pod waits before it starts."""

    def create(self, body: Mapping[str, Any], now: float) -> None:
        """Add a pod."""
        super().create(body, now + WAIT_SECONDS)


class SuspendableRunner(Runner):
    """A run whose job each SIGHUP suspends or resumes."""

    def _reload(self) -> None:
        policy = self._job.spec.run_policy
        policy = policy.model_copy(update={"suspend": not policy.suspend})
        spec = self._job.spec.model_copy(update={"run_policy": policy})
        self._job = self._job.model_copy(update={"spec": spec})


def main() -> int:
    """Run the job of the file."""
    os.environ[RUN_PID] = str(os.getpid())
    run_command.LocalNode = SlowNode  # type: ignore[misc]
    run_command.Runner = SuspendableRunner  # type: ignore[misc]
    return run_command.run(RunOptions(sys.argv[1], output="json", grace=2.0))


if __name__ == "__main__":
    sys.exit(main())
