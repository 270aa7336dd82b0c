"""Attackers without credentials want to keep all agents out, or to use up the coordinator's memory and descriptors."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.capacity import raise_open_files
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.thread import Coordinator
from pytorchjob_operator.coordinator.unauthenticated import Stage
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.rounds.values import Policy
from tests.attacks.bystander import Bystander, bystander, form_round
from tests.coordinator.talking import KEY, pods

ROOT = Path(__file__).parents[2]
VICTIM, CALM = "victim", "calm"
SOCKETS = 5000
MEMBERS = 8


class Target:
    """A coordinator over TLS, and what trusts it."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        cert, key = certificate.make(datetime.now(UTC))  # noqa: TID251
        (folder / "crt").write_bytes(cert)
        (folder / "key").write_bytes(key)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(folder / "crt", folder / "key")
        self.trust = ssl.create_default_context(cadata=cert.decode())
        self.limits, self.coordinator = limits, Coordinator(KeyedTokens(KEY), 1, serving, limits=limits)
        self.port = self.coordinator.start("127.0.0.1", 0)
        for job, members in ((VICTIM, MEMBERS), (CALM, 1)):
            self.coordinator.apply(job, Sync(Policy(members, members), pods(members), job, job))


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    found = Target(tmp_path, Limits.within(None, raise_open_files() // 2))
    yield found
    found.coordinator.stop()


@contextmanager
def flood(target: Target, addresses: int, per_second: int) -> Iterator[None]:
    """Five thousand sockets of other processes; what is closed is opened again."""
    command = [sys.executable, "-m", "tests.attacks.flooding", str(target.port), str(SOCKETS), str(addresses)]
    with subprocess.Popen(
        [*command, str(per_second)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert "opened" in process.stdout.readline()
        yield
        process.stdin.close()
        print("flood:", process.stdout.read().strip())


@asynccontextmanager
async def attacked(target: Target, addresses: int, per_second: int = 1000) -> AsyncIterator[Bystander]:
    async with bystander(target.port, CALM, target.trust) as found:
        flooding = flood(target, addresses, per_second)
        await asyncio.to_thread(flooding.__enter__)
        try:
            yield found
        finally:
            await asyncio.to_thread(flooding.__exit__, None, None, None)


@pytest.mark.parametrize("addresses", [1, 50])
async def test_a_flood_of_5000_sockets_keeps_no_agent_out(target: Target, addresses: int) -> None:
    async with attacked(target, addresses) as calm:
        for talker in await form_round(target.port, VICTIM, MEMBERS, target.trust):
            talker.cut()
        assert calm.seconds, "the other job was answered"


async def test_a_flood_does_not_use_up_memory_or_descriptors(target: Target) -> None:
    most = sum(target.limits.unauthenticated.values())
    async with attacked(target, 50, per_second=4000):
        for _ in range(20):
            assert target.coordinator.connections <= most + target.limits.connections
            await asyncio.sleep(0.05)
        assert _sessions(target) <= target.limits.unauthenticated[Stage.COSTLY]
        for talker in await form_round(target.port, VICTIM, MEMBERS, target.trust):
            talker.cut()


def _sessions(target: Target) -> int:
    """TLS sessions of connections without a hello."""
    server = target.coordinator._server
    assert server is not None
    return sum(server._unauthenticated.stage(item) is Stage.COSTLY for item in server._unauthenticated)
