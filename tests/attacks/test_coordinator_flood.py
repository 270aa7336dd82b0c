"""Attackers without credentials want to keep all agents out, or to use up the coordinator's memory and descriptors."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pytorchjob_agent.contract.unauthenticated import EntryStage
from pytorchjob_operator.coordinator.capacity import raise_open_files
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.server import ACCEPTS_AT_ONCE
from tests.attacks.agents import calm_agent, form_round
from tests.attacks.bystander import Bystander
from tests.attacks.target import CALM, MEMBERS, VICTIM, Target, other_process
from tests.waiting import until_async

SOCKETS = 5000


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    found = Target(tmp_path, Limits.within(None, raise_open_files() // 2))
    yield found
    found.coordinator.stop()


@asynccontextmanager
async def attacked(target: Target, addresses: int, per_second: int = 1000) -> AsyncIterator[Bystander]:
    """Five thousand sockets of another process; what is closed is opened again."""
    async with calm_agent(target.port, CALM, target.trust) as found:
        flood = other_process("flooding", target.port, SOCKETS, addresses, per_second)
        await asyncio.to_thread(flood.__enter__)
        try:
            yield found
        finally:
            await asyncio.to_thread(flood.__exit__, None, None, None)


async def a_round_forms(target: Target) -> None:
    for talker in await form_round(target.port, VICTIM, MEMBERS, target.trust):
        talker.cut()


@pytest.mark.parametrize(
    "addresses", [pytest.param(1, id="from one address"), pytest.param(50, id="from fifty addresses")]
)
async def test_a_flood_of_5000_sockets_keeps_no_agent_out(target: Target, addresses: int) -> None:
    async with attacked(target, addresses) as calm:
        await a_round_forms(target)
        await calm.settled()


async def test_a_flood_does_not_use_up_memory_or_descriptors(target: Target) -> None:
    # What is displaced is closed in the loop's next turn. Meanwhile others are accepted, and others advance.
    most = sum(target.limits.unauthenticated.values()) + 2 * ACCEPTS_AT_ONCE
    async with attacked(target, 50, per_second=4000) as calm:
        for _ in range(20):
            assert target.coordinator.connections <= most + 1
            await asyncio.sleep(0.05)
        server = target.server
        stages = [server._unauthenticated.stage(connection) for connection in server._unauthenticated]
        assert stages.count(EntryStage.COSTLY) <= target.limits.unauthenticated[EntryStage.COSTLY]
        await a_round_forms(target)
        await calm.settled()


async def test_a_flood_cannot_take_the_last_descriptor(target: Target) -> None:
    """The limits expect more files than the process has: another part of it, or another machine, has taken them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with calm_agent(target.port, CALM, target.trust) as calm:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        try:
            flood = other_process("flooding", target.port, SOCKETS, 50, 1000)
            await asyncio.to_thread(flood.__enter__)
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
            await until_async(lambda: target.coordinator.displaced > 1000)
            await calm.settled()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await asyncio.to_thread(flood.__exit__, None, None, None)
        await a_round_forms(target)
