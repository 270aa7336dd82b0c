"""A tenant with valid pods wants to slow down other jobs, to take their connections, or to use up the memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import Draining, Failed, Join, Refused, RoundId, Unreachable
from pytorchjob_operator.coordinator.limits import MIB, Limits
from pytorchjob_operator.rounds.phases import Running
from tests.attacks.agents import beating, calm_agent, dial, form_round
from tests.attacks.bystander import Bystander
from tests.attacks.target import ATTACKER, CALM, MEMBERS, VICTIM, Target, other_process
from tests.coordinator.talking import Talker, hello
from tests.waiting import until_async

PODS = 200


@asynccontextmanager
async def beside_a_calm_job(
    folder: Path, attackers: int, limits: Limits | None = None
) -> AsyncIterator[tuple[Target, Bystander]]:
    """A coordinator that answers the agent of a calm job meanwhile."""
    target = Target(folder, limits or Limits(), attackers)
    try:
        async with calm_agent(target.port, CALM, target.trust) as calm:
            yield target, calm
    finally:
        await asyncio.to_thread(target.coordinator.stop)


@asynccontextmanager
async def attacked(folder: Path, how: str, limits: Limits | None = None) -> AsyncIterator[Target]:
    """200 agents of one job, and a calm job beside them that stays connected."""
    async with beside_a_calm_job(folder, PODS, limits) as (target, calm):
        attack = other_process("insiders", target.port, target.certificate, ATTACKER, PODS, how)
        await asyncio.to_thread(attack.__enter__)
        calm.begin()
        try:
            yield target
            await calm.settled()
        finally:
            await asyncio.to_thread(attack.__exit__, None, None, None)


@pytest.mark.parametrize("how", ["beats", "failures", "tails", "rounds", "churn"])
async def test_200_agents_of_one_job_do_not_keep_another_job_from_training(tmp_path: Path, how: str) -> None:
    async with attacked(tmp_path, how) as target:
        talkers = await form_round(target.port, VICTIM, MEMBERS, target.trust)
        async with AsyncExitStack() as heartbeats:
            for talker in talkers:
                await heartbeats.enter_async_context(beating(talker))
            for talker in talkers:
                await talker.hear_kind("heartbeat_reply")
            await asyncio.sleep(2.0)
            state = target.coordinator._jobs.state(VICTIM)
            assert state is not None
            assert isinstance(state.phase, Running)
        for talker in talkers:
            talker.cut()


async def test_texts_of_one_agent_cannot_make_messages_that_other_agents_refuse(tmp_path: Path) -> None:
    async with beside_a_calm_job(tmp_path, 3) as (target, calm):
        talkers = await form_round(target.port, ATTACKER, 3, target.trust)
        await calm.during(lambda: _report_texts(target, talkers))
        for talker in talkers:
            talker.cut()


async def _report_texts(target: Target, talkers: list[Talker]) -> None:
    """The last member reports a text everywhere, each time in a new round."""
    for text in ("x" * 4096, "🔥" * 4096, "\ud800" * 4096, "\x00" * 4096):
        state = target.coordinator._jobs.state(ATTACKER)
        assert state is not None
        assert state.round is not None
        talkers[2].say(Draining(1.0, text), Unreachable(state.round.id, text, text))
        talkers[2].say(Failed(state.round.id, 2, 0, 1, text, text), Join(4002, state.round.id))
        for talker in talkers[:2]:
            await talker.hear_kind("restart")  # raises ProtocolError for what an agent would refuse
            talker.say(Join(4000, state.round.id))
        await talkers[2].hear_kind("stop")
        talkers[2].cut()
        talkers[2] = await dial(target.port, hello(2, job=ATTACKER, incarnation=text[:9]), target.trust)
        talkers[2].say(Join(4002))
        for talker in talkers:
            await talker.hear_kind("assigned")


async def test_unfinished_messages_of_one_job_do_not_use_up_the_memory(tmp_path: Path) -> None:
    async with attacked(tmp_path, "tails", Limits(held=MIB)) as target:
        await until_async(lambda: target.coordinator.refusals > 0)
        assert target.server._jobs._usage._held.total() <= MIB
        for talker in await form_round(target.port, VICTIM, MEMBERS, target.trust):
            talker.cut()


async def test_one_namespace_cannot_take_all_connections(tmp_path: Path) -> None:
    limits = Limits(connections=40)
    async with attacked(tmp_path, "beats", limits) as target:
        refused: Refused = await _refused(target)
        assert "no connection for job team-of-attacker/attacker: namespace team-of-attacker has 30" in refused.message
        for talker in await form_round(target.port, VICTIM, MEMBERS, target.trust):
            talker.cut()


async def _refused(target: Target) -> Refused:
    greeting = hello(PODS - 1, job=ATTACKER, incarnation="other")
    while True:
        with suppress(OSError):  # its place may be taken before it has proved its identity
            talker = (await Talker.dial(target.port, target.trust)).say(greeting)
            message = await talker.hear()
            talker.cut()
            if isinstance(message, Refused) and "no connection" in message.message:
                return message


async def test_a_round_number_at_its_limit_does_not_wedge_the_job(tmp_path: Path) -> None:
    async with beside_a_calm_job(tmp_path, 2) as (target, calm):
        await calm.during(lambda: _lie_about_the_round(target))
        for talker in await form_round(target.port, ATTACKER, 2, target.trust):
            talker.cut()


async def _lie_about_the_round(target: Target) -> None:
    for id_ in (RoundId(2**53, 1), RoundId(1, 2**31 - 1)):
        (await dial(target.port, hello(1, job=ATTACKER, incarnation=str(id_)), target.trust)).cut()
        liar = await Talker.dial(target.port, target.trust)
        liar.say(hello(1, job=ATTACKER, round=id_, rank=1, size=2, incarnation=str(id_)))
        await liar.hear()
        liar.cut()
