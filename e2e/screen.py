"""What a person types, and sees, for a page of transcripts."""

import os
import subprocess
import sys

from e2e.conftest import ROOT
from e2e.kubectl import Kubectl
from tests.readme import Done
from tests.shell import transcript


class Screen:
    """What a person types for a namespace, and sees."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl, self._lines = kubectl, list[str]()

    def __call__(self, command: str, tail: int | None = None, *, check: bool = True) -> str:
        """Run a command of kubectl or of ours; keep its last lines."""
        self._lines.append(f"$ {command}")
        program, *words = command.split()
        if program == "kubectl":
            printed = self._kubectl(*words, check=check)
        else:
            ours = [sys.executable, "-m", *command.split(), "-n", self._kubectl.namespace]
            env = {**os.environ, "KUBECONFIG": str(self._kubectl.kubeconfig)}
            printed = subprocess.run(ours, env=env, capture_output=True, text=True, timeout=120, check=check).stdout
        lines = printed.splitlines()
        self._lines += lines if tail is None else lines[-tail:]
        return printed

    def keep(self, name: str) -> None:
        """Keep it as the transcript of this name, if that is asked for."""
        done = Done(0, "\n".join(self._lines))
        transcript.keep(name, done, ROOT, {self._kubectl.namespace: "NAMESPACE"})
