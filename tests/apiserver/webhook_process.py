"""An operator of another project as a process. It runs as released, with one thing made up for, which a cluster does.

It writes the certificate of its webhooks into a Secret, and the kubelet would mount that as a folder.
"""

import base64
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from tests.ports import free_port
from tests.processes import start
from tests.waiting import until


class Cluster(Protocol):
    """Where such an operator works: a control plane on this machine, or a whole cluster."""

    @property
    def kubeconfig(self) -> Path: ...

    def kubectl(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; never raises for its exit status."""
        ...

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get -o json`, which must succeed."""
        ...


class Certificate(NamedTuple):
    """Of a program's webhooks: its Secret, and the folder in which the program expects it."""

    namespace: str
    secret: str
    folder: Path


class WebhookProcess:
    """A program against a control plane; it is ready when its webhooks answer, and ends with this process."""

    def __init__(self, plane: Cluster, log_file: Path, certificate: Certificate) -> None:
        self._plane, self._certificate = plane, certificate
        self.log_file = log_file
        self.health = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes]

    def start(self, program: Path, *options: str, **env: str) -> None:
        env["KUBECONFIG"] = str(self._plane.kubeconfig)
        self._process = start([program, *options], self.log_file, env)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_ready(self) -> Self:
        until(self._secret, story=lambda: self.log[-3000:])
        self._mount()
        until(self._ready, story=lambda: self.log[-3000:])
        return self

    def _secret(self) -> dict[str, str]:
        found = self._plane.get("-n", self._certificate.namespace, "secret", self._certificate.secret)
        content: dict[str, str] = found.get("data", {})
        return content

    def _mount(self) -> None:
        """What the kubelet would do. The files stay: another test run on this machine may be about to read them."""
        for name, content in self._secret().items():
            new = self._certificate.folder / f"{name}.{os.getpid()}"
            new.write_bytes(base64.b64decode(content))
            new.replace(self._certificate.folder / name)  # also of another user

    def _ready(self) -> bool:
        self._assert_runs()
        try:
            with urllib.request.urlopen(f"http://{self.health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _assert_runs(self) -> None:
        ended = self._process.poll()
        assert ended is None, f"{self.log_file.stem} ended with {ended}: {self.log[-3000:]}"

    def stop(self) -> None:
        """End it as the kubelet does; it must not have ended before."""
        try:
            self._assert_runs()
        finally:
            self._process.terminate()
            self._process.wait(30)
