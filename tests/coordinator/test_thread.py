"""The coordinator's thread: started, told, asked and stopped from outside."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Heartbeat, Join, RoundId
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.thread import Coordinator, Hooks
from pytorchjob_operator.coordinator_update import Finish, Forget, Sync
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.ledger import JobStage, begin
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.rounds.state import Input, JobEvent, JobSynced
from pytorchjob_operator.rounds.values import Policy
from tests.coordinator.talking import JOB, KEY, Talker, hello, pods
from tests.waiting import again_async, until_async

POLICY = Policy(1, 1)


@pytest.fixture
def events() -> list[JobEvent]:
    return []


@pytest.fixture
def coordinator(events: list[JobEvent]) -> Iterator[Coordinator]:
    started = Coordinator(KeyedTokens(KEY), term=3, hooks=Hooks(lambda _, new: events.extend(new)))
    yield started
    started.stop()


async def alone(port: int, trust: ssl.SSLContext | None = None) -> Talker:
    """The only member of a job, in its first round."""
    talker = (await Talker.dial(port, trust)).say(hello(), Join(4000))
    assert str((await talker.hear_kind("assigned")).round) == "3.1"
    return talker


async def test_a_job_that_is_expected_gets_its_round_and_a_report(
    coordinator: Coordinator, events: list[JobEvent]
) -> None:
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    talker = await alone(port)
    talker.say(Heartbeat(step=7, total=9, metrics={"loss": 0.5}))
    await talker.hear_kind("heartbeat_reply")
    report = coordinator.report(JOB)
    assert report is not None
    assert (report.round, report.running, report.members, report.world) == ("3.1", True, 1, 1)
    assert (report.step, report.total, dict(report.metrics)) == (7, 9, {"loss": 0.5})
    assert TrainingReason.ROUND_STARTED in [event.reason for event in events]
    talker.close()


async def test_a_job_that_was_suspended_has_later_rounds_than_before(coordinator: Coordinator) -> None:
    """The fences of its saves refuse the rounds before, so none of them may begin again."""
    port = coordinator.start("127.0.0.1", 0)
    for number in (1, 2, 3):
        coordinator.apply(JOB, Sync(POLICY, pods(1)))
        talker = (await Talker.dial(port)).say(hello(), Join(4000))
        assert (await talker.hear_kind("assigned")).round == RoundId(3, number)
        coordinator.apply(JOB, Forget())
        await talker.hear_kind("refused")
        talker.close()


async def test_what_was_expected_before_the_start_is_known(coordinator: Coordinator) -> None:
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    (await alone(coordinator.start("127.0.0.1", 0))).close()


async def test_all_that_is_known_of_a_jobs_pods_reaches_the_decisions() -> None:
    inputs = list[Input]()
    time: dict[str, Any] = {"stage": JobStage.WAITING_FOR_PODS, "ledger": begin(TimeClass.WAITING_FOR_PODS, 7.0)}
    coordinator = Coordinator(
        KeyedTokens(KEY), term=3, hooks=Hooks(record=lambda uid, state, input_, now: inputs.append(input_))
    )
    coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1), restarts=2, terminating={1: "uid-1"}, trained=True, **time))
    synced = JobSynced(POLICY, pods(1), 2, {1: "uid-1"}, trained=True)
    await until_async(lambda: inputs == [synced])
    report = coordinator.report(JOB)
    assert report is not None
    assert report.ledger is not None
    assert report.ledger.current is TimeClass.WAITING_FOR_PODS
    coordinator.stop()


async def test_a_job_that_is_forgotten_is_unknown(coordinator: Coordinator) -> None:
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    await until_async(lambda: coordinator.report(JOB) is not None)
    coordinator.apply(JOB, Forget())
    await until_async(lambda: coordinator.report(JOB) is None)
    talker = (await Talker.dial(port)).say(hello())
    assert "does not know this job" in (await talker.hear_kind("refused")).message
    talker.close()


async def test_stop_closes_the_port_and_every_connection(coordinator: Coordinator) -> None:
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    talker = await alone(port)
    await asyncio.to_thread(coordinator.stop)
    assert await talker.hear() is None
    with pytest.raises(ConnectionError):
        await Talker.dial(port)
    talker.close()


async def test_a_loop_that_breaks_begins_anew_with_what_is_known(coordinator: Coordinator) -> None:
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    talker = await alone(port)
    await until_async(lambda: coordinator._serving is not None)
    assert coordinator._loop is not None
    coordinator._loop.call_soon_threadsafe(coordinator._loop.stop)
    assert await talker.hear() is None
    talker.close()
    again = (await Talker.dial(port)).say(hello())
    await again.hear_kind("welcome")
    report = coordinator.report(JOB)
    assert report is not None
    assert report.round == "3.1"
    again.close()


def test_a_stopped_one_that_never_started_is_no_error(coordinator: Coordinator) -> None:
    coordinator.stop()


@asynccontextmanager
async def served(coordinator: Coordinator) -> AsyncIterator[int]:
    """The port of a coordinator that knows one job."""
    port = coordinator.start("127.0.0.1", 0)
    try:
        coordinator.apply(JOB, Sync(POLICY, pods(1)))
        yield port
    finally:
        await asyncio.to_thread(coordinator.stop)


async def test_over_tls_agents_see_the_certificate_that_they_trust(tmp_path: Path) -> None:
    serving, trusting = _contexts(tmp_path)
    coordinator = Coordinator(KeyedTokens(KEY), 3, serving)
    async with served(coordinator) as port:
        talker = await alone(port, trusting)
        talker.writer.transport.abort()
        plain = await Talker.dial(port)
        assert await plain.say(hello()).hear() is None
        plain.close()


async def test_a_certificate_is_changed_while_agents_that_trust_both_stay_and_come(tmp_path: Path) -> None:
    serving, trusting = _contexts(tmp_path)
    following, also = _contexts(tmp_path)
    coordinator = Coordinator(KeyedTokens(KEY), 3, serving)
    async with served(coordinator) as port:
        talker = await alone(port, trusting)
        coordinator.use_tls(following)
        await until_async(lambda: coordinator._server is not None and coordinator._server._shared.ssl is following)
        await talker.say(Heartbeat()).hear_kind("heartbeat_reply")
        newer = (await Talker.dial(port, also)).say(hello())
        await newer.hear_kind("welcome")
        newer.cut()
        with pytest.raises(ssl.SSLCertVerificationError):
            await Talker.dial(port, trusting)
        talker.writer.transport.abort()


class HookedLock(AbstractContextManager[None]):
    """A lock before which the coordinator's thread does something, once."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._lock, self._before = threading.Lock(), [before]

    def __enter__(self) -> None:
        if threading.current_thread().name == "coordinator" and self._before:
            self._before.pop()()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_a_certificate_that_changes_while_the_loop_starts_is_used(tmp_path: Path) -> None:
    serving, _ = _contexts(tmp_path)
    following, trusting = _contexts(tmp_path)
    coordinator = Coordinator(KeyedTokens(KEY), 3, serving)
    coordinator._lock = HookedLock(lambda: coordinator.use_tls(following))  # type: ignore[assignment]
    async with served(coordinator) as port:
        talker = await alone(port, trusting)
        talker.writer.transport.abort()


async def test_over_tls_strangers_are_refused_and_have_no_more_time_than_without(tmp_path: Path) -> None:
    await again_async(lambda number: _strangers(tmp_path, seconds=0.3 * 4**number))


async def _strangers(folder: Path, seconds: float) -> None:
    """All of them come within these seconds: that is what a stall can spoil."""
    serving, trusting = _contexts(folder)
    coordinator = Coordinator(KeyedTokens(KEY), 3, serving, limits=Limits(hello=seconds, farewell=seconds))
    async with served(coordinator) as port:
        told = [(await Talker.dial(port, trusting)).say(hello(token="0" * 64)), await Talker.dial(port, trusting)]
        shaking_hands = await Talker.dial(port)
        assert "token" in (await told[0].hear_kind("refused")).message
        assert "no hello within" in (await told[1].hear_kind("refused")).message
        for talker in (*told, shaking_hands):
            assert await talker.hear() is None
            talker.close()
        await until_async(lambda: coordinator.connections == 0)
        assert coordinator.refusals == 2


def _contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a coordinator serves with, and what trusts it."""
    certificate_pem, key_pem = certificate.make(datetime.now(UTC))  # noqa: TID251
    (folder / "crt").write_bytes(certificate_pem)
    (folder / "key").write_bytes(key_pem)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "crt", folder / "key")
    return serving, ssl.create_default_context(cadata=certificate_pem.decode())


@pytest.mark.parametrize(
    ("failed", "trains", "code"),
    [
        pytest.param(True, True, 1, id="failed: who trains still ends badly"),
        pytest.param(True, False, 0, id="failed: who comes later has nothing to do, and is not to be started again"),
        pytest.param(False, True, 0, id="succeeded"),
    ],
)
async def test_agents_of_a_job_that_has_ended_are_told_to_stop(
    coordinator: Coordinator, failed: bool, trains: bool, code: int
) -> None:
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Finish(failed))
    talker = (await Talker.dial(port)).say(hello(round=RoundId(2, 1) if trains else None, size=1))
    assert (await talker.hear_kind("stop")).exit_code == code
    assert await talker.hear() is None
    talker.close()


async def test_agents_that_are_there_when_the_job_ends_are_told_too(coordinator: Coordinator) -> None:
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    talker = await alone(port)
    coordinator.apply(JOB, Finish(failed=True))
    assert (await talker.hear_kind("stop")).exit_code == 1
    assert coordinator.report(JOB) is None
    talker.close()


async def test_a_job_that_runs_again_is_expected_again(coordinator: Coordinator) -> None:
    coordinator.apply(JOB, Finish(failed=True))
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    (await alone(coordinator.start("127.0.0.1", 0))).close()


async def test_connections_and_refusals_are_counted(coordinator: Coordinator) -> None:
    assert (coordinator.connections, coordinator.refusals, coordinator.lag()) == (0, 0, 0.0)
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(POLICY, pods(1)))
    talker = await alone(port)
    stranger = (await Talker.dial(port)).say(hello(token="0" * 64))
    assert await stranger.heard_all() == ["refused"]
    await until_async(lambda: (coordinator.connections, coordinator.refusals) == (1, 1))
    talker.close()
    stranger.close()
