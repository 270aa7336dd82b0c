"""The open port, over real sockets: who is refused and how, and that nobody can hold it up."""

import asyncio
import socket
import struct

import pytest

from pytorchjob_agent.contract.messages import LINE_LIMIT, Done, Heartbeat, Join, Message, Refused, Resumed, RoundId
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_agent.contract.unauthenticated import EntryStage
from pytorchjob_operator import tokens
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.usage import Title
from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.state import JobSynced
from pytorchjob_operator.rounds.values import Policy
from tests.coordinator.talking import JOB, KEY, hello, house, pod, pods
from tests.waiting import until_async

UNKNOWN_ROUND = Resumed(RoundId(1, 9), restarts=0)
"""It is answered each time that it is said."""
IMPATIENT = Limits(hello=0.3, farewell=0.3)
FOUR = dict.fromkeys(EntryStage, 4)


@pytest.mark.parametrize(
    ("said", "words", "again"),
    [
        pytest.param(hello(token="0" * 64), "token: wrong", False, id="a wrong token"),
        pytest.param(hello(token="ü\ud800"), "token: wrong", False, id="a token that is no text"),
        pytest.param(
            hello(token=tokens.token(KEY, "other-job", pod(0))), "token: wrong", False, id="another job's token"
        ),
        pytest.param(hello(token=tokens.token(KEY, JOB, pod(1))), "token: wrong", False, id="another pod's token"),
        pytest.param(hello(1, pod=pod(0)), "index: 1 is not the index of tiny-worker-0", False, id="another's place"),
        pytest.param(hello(job="unheard-of"), "does not know this job", True, id="a job that was not told of"),
        pytest.param(hello(7), "does not know this pod", True, id="a pod that was not told of"),
        pytest.param(hello(version=999), "protocol version 999", False, id="another version of the protocol"),
        pytest.param(Join(1), "the first message must be hello", False, id="anything before hello"),
        pytest.param(b"\x16\x03\x01\x02\n", "is not JSON", False, id="what is no JSON, as TLS to a plain port"),
        pytest.param(b"[]\n", "kind", False, id="JSON that is no message"),
        pytest.param(b'{"kind":"hello"}\n', "missing", False, id="a hello without its fields"),
        pytest.param(
            b"[" * LINE_LIMIT + b"\n", "a hello of more than 24576 bytes", False, id="a hello that is too long"
        ),
        pytest.param(b"x" * 10 * LINE_LIMIT, "24576", False, id="a hello that never ends"),
        pytest.param(b"[" * 20_000 + b"\n", "is not JSON", False, id="JSON that is too deep"),
    ],
)
async def test_a_stranger_is_refused_for(said: Message | bytes, words: str, again: bool) -> None:
    async with house() as home:
        talker = await home.dial()
        talker.write(said if isinstance(said, bytes) else said.to_line())
        refused = await talker.hear()
        assert isinstance(refused, Refused)
        assert words in refused.message
        assert refused.again is again
        assert await talker.hear() is None


async def test_silence_is_refused_after_a_while() -> None:
    async with house(IMPATIENT) as home:
        refused = await (await home.dial()).hear()
        assert isinstance(refused, Refused)
        assert refused.again
        assert "no hello within" in refused.message


async def test_a_slow_hello_is_refused_however_it_drips() -> None:
    async with house(IMPATIENT) as home:
        talker = await home.dial()
        dripping = asyncio.create_task(_drip(talker.writer, hello().to_line()))
        assert await talker.heard_all() == ["refused"]
        dripping.cancel()


async def _drip(writer: asyncio.StreamWriter, line: bytes) -> None:
    for one in line:
        writer.write(bytes([one]))
        await asyncio.sleep(0.05)


async def test_a_wrong_token_is_a_problem_of_the_job_told_once() -> None:
    async with house() as home:
        for _ in range(3):
            await (await home.dial()).say(hello(token="0" * 64)).heard_all()
        state = home.jobs.state(JOB)
        assert state is not None
        assert "wrong token" in state.problems[TrainingReason.AGENT_REFUSED]
        assert [event.reason for event in home.events] == [TrainingReason.AGENT_REFUSED]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param([b"nonsense\n"], "is not JSON", id="nonsense"),
        pytest.param([b"x" * 2 * LINE_LIMIT], "a message of more than 65536", id="a line that never ends"),
        pytest.param([hello().to_line()], "a second hello on one connection", id="a second hello"),
        pytest.param([b'{"kind":"join","port":0}\n'], "join: port: '0' is not", id="a field that is wrong"),
        pytest.param([Heartbeat().to_line()] * 300, "messages per second", id="more messages than its rate allows"),
        pytest.param([b'{"kind":"welcome","term":1}\n'], "kind: 'welcome'", id="a message that is not an agent's"),
    ],
)
async def test_a_member_is_refused_for(said: list[bytes], words: str) -> None:
    async with house(Limits(rate=0.1)) as home:
        talker = await home.member()
        talker.write(b"".join(said))
        assert words in (await talker.hear_kind("refused")).message
        assert await talker.hear() is None


async def test_a_peer_that_does_not_read_is_dropped() -> None:
    async with house(Limits(rate=1e9, burst=1e9, unread=16 * 1024)) as home:
        talker = await home.member(deaf=True)
        flood = asyncio.create_task(_flood(talker.writer))
        await until_async(lambda: (state := home.jobs.state(JOB)) is not None and state.members[0].connection is None)
        flood.cancel()


async def _flood(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(UNKNOWN_ROUND.to_line() * 1000)
        await asyncio.sleep(0.01)


async def test_a_connection_that_its_peer_has_just_reset_can_be_closed() -> None:
    async with house() as home:
        with socket.create_connection(("127.0.0.1", home.port)) as peer:
            peer.sendall(hello().to_line())
            await until_async(lambda: (state := home.jobs.state(JOB)) is not None and state.members)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        (connection,) = home.server._all
        connection.hang_up()
        await until_async(lambda: not home.server._all)


async def test_a_job_has_so_many_connections_and_no_more() -> None:
    async with house(Limits(spare_links=-3), members=2) as home:
        first = await home.member(0)
        second = (await home.dial()).say(hello(1))
        refused = await second.hear()
        assert isinstance(refused, Refused)
        assert refused.again
        assert "1 is the limit" in refused.message
        first.close()
        await until_async(lambda: (known := home.jobs.admission(JOB)) is not None and known.shares[0].used == 0)
        await home.member(1)


async def test_beyond_the_most_connections_the_next_is_closed() -> None:
    async with house(Limits(connections=1, namespace_share=1.0)) as home:
        await home.member(0)
        refused = await (await home.dial()).say(hello(1)).hear()
        assert isinstance(refused, Refused)
        assert refused.again
        assert (
            "no connection for job team/tiny: the coordinator has 1 connection, and 1 is the limit" in refused.message
        )


async def test_the_jobs_of_a_namespace_leave_connections_for_others() -> None:
    async with house(Limits(connections=4, namespace_share=0.5), members=3) as home:
        for index in range(2):
            await home.member(index)
        refused = await (await home.dial()).say(hello(2)).hear()
        assert isinstance(refused, Refused)
        assert "namespace team has 2 connections" in refused.message
        state = home.jobs.state(JOB)
        assert state is not None
        assert state.problems[TrainingReason.AGENT_LIMIT] == refused.message, "people see it in the job's status"
        home.jobs.sync_job("other", JobSynced(Policy(1, 1), pods(1)), Title("other", "another-team"))
        await home.member(0, job="other")


async def test_many_strangers_do_not_keep_a_member_out() -> None:
    async with house(Limits(unauthenticated=FOUR)) as home:
        silent = [await home.dial() for _ in range(20)]
        await home.member(0)
        assert await silent[0].hear() is None


async def test_two_members_get_a_round() -> None:
    async with house() as home:
        first, second = await home.waiting(0), await home.waiting(1)
        one, two = await first.hear_kind("assigned"), await second.hear_kind("assigned")
        assert (one.rank, two.rank) == (0, 1)
        assert one.round == two.round
        assert {one.master_address, two.master_address} == {"10.0.0.0"}
        assert {one.master_port, two.master_port} == {4000}
        first.say(Done(one.round))
        second.say(Done(two.round))
        await first.hear_kind("finished")
        await second.hear_kind("finished")


async def test_a_member_that_connects_again_goes_on() -> None:
    async with house() as home:
        first, second = await home.waiting(0), await home.waiting(1)
        assigned = await first.hear_kind("assigned")
        await second.hear_kind("assigned")
        again = await home.member(0, round=assigned.round, rank=0, size=2)
        assert await first.hear() is None
        again.say(Heartbeat())
        await again.hear_kind("heartbeat_reply")
        state = home.jobs.state(JOB)
        assert state is not None
        assert isinstance(state.phase, Running)


async def test_a_lost_connection_is_noticed() -> None:
    async with house(members=3, least=2) as home:
        talkers = [await home.waiting(index) for index in range(3)]
        for talker in talkers:
            await talker.hear_kind("assigned")
        talkers[2].close()
        restart = await talkers[0].hear_kind("restart")
        assert "tiny-worker-2" in restart.reason


async def test_a_job_that_is_forgotten_sends_its_agents_away() -> None:
    async with house() as home:
        talker = await home.member(0)
        home.jobs.forget_job(JOB)
        assert (await talker.hear_kind("refused")).again
        assert await talker.hear() is None
        assert home.jobs.state(JOB) is None
