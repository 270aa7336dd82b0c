"""A coordinator over TLS with three jobs, each in its own namespace: the attacker's, the victim's and a calm one."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.server import Server
from pytorchjob_operator.coordinator.thread import Coordinator
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.rounds.values import Policy
from tests.coordinator.talking import KEY, pods

ROOT = Path(__file__).parents[2]
ATTACKER, VICTIM, CALM = "attacker", "victim", "calm"
MEMBERS = 8


class Target:
    """The coordinator, and what trusts it."""

    def __init__(self, folder: Path, limits: Limits, attackers: int = 1) -> None:
        cert, key = certificate.make(datetime.now(UTC))  # noqa: TID251
        self.certificate = folder / "crt"
        self.certificate.write_bytes(cert)
        (folder / "key").write_bytes(key)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(self.certificate, folder / "key")
        self.trust = ssl.create_default_context(cadata=cert.decode())
        self.limits, self.coordinator = limits, Coordinator(KeyedTokens(KEY), 1, serving, limits=limits)
        self.port = self.coordinator.start("127.0.0.1", 0)
        for job, members in ((VICTIM, MEMBERS), (CALM, 1), (ATTACKER, attackers)):
            self.coordinator.apply(job, Sync(Policy(members, members), pods(members), job, f"team-of-{job}"))

    @property
    def server(self) -> Server:
        assert self.coordinator._server is not None
        return self.coordinator._server


@contextmanager
def other_process(module: str, *arguments: object) -> Iterator[None]:
    """An attacker in a process of its own, from the moment at which it has begun; it ends with its input."""
    command = [sys.executable, "-m", f"tests.attacks.{module}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline(), "the attacker has failed"
        try:
            yield
        finally:
            process.stdin.close()
            print(f"{module}:", process.stdout.read().strip())
