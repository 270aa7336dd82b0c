"""An intruder reaches the port of a round's store, and knows everything but the round's secret.

TCPStore has no authentication, so the intruder writes whatever it wants. It wants to restart the workers, to end them
early, to lead them to another master, or to have them work in a store of its own. docs/security.md has what stays open.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
import torch.distributed as dist

from pytorchjob_agent.contract.messages import Assigned, Failed, Hello, Join, Message, RoundId, Unreachable
from pytorchjob_agent.rendezvous import agreement, round_store
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.rendezvous.membership import Membership, PeerError
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_operator.coordinator.jobs import Jobs, no_certificates
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.rounds import recording
from pytorchjob_operator.rounds.state import JobSynced
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.agent.rendezvous.conftest import Job, Pod
from tests.agent.rendezvous.conftest import job as job
from tests.attacks.bystander import SAMPLES, Bystander
from tests.attacks.neighbour import neighbour

pytestmark = [pytest.mark.torch]
_MASTER = re.compile(r"round (\S+): .* master ([\d.]+):(\d+),")
STEPS = 150 + 2 * SAMPLES
PLACE = Assigned(RoundId(3, 7), 1, 2, 1, 2, "127.0.0.1", 1, 0, secret="5ec2e7")


def _address(pod: Pod) -> tuple[str, str, int]:
    """The newest round that a pod has begun, and where its store is."""
    id_, host, port = _MASTER.findall(pod.text())[-1]
    return id_, host, int(port)


@dataclass
class Training:
    """A job that trains, and an intruder with a connection to the part of its store that members use."""

    zero: Pod
    one: Pod
    store: Any
    neighbour: Bystander

    def write(self, *values: tuple[str, str]) -> None:
        """Write these keys and values again and again, until the neighbour is measured."""

        def write_all() -> None:
            for key, value in values:
                self.store.set(key, value)

        self.neighbour.while_repeated(write_all)


@contextmanager
def training(job: Job, leaves: bool = False) -> Iterator[Training]:
    """Start the job's two pods; once they train, the coordinator leaves if asked to. Both must end well."""
    job.env |= {"STEPS": str(STEPS), "LINGER": "10"}
    zero, one = job.start_all()
    one.says("step 5 ")
    id_, host, port = _address(one)
    store = dist.PrefixStore(f"pytorchjob/{id_}", round_store.connect(host, port))
    if leaves:
        job.away()
        time.sleep(2)
    with neighbour(host, port) as bystander:
        yield Training(zero, one, store, bystander)
    job.hurry()
    assert job.end() == [0, 0]


def forged(value: str, rank: int = 1) -> str:
    """A value in the members' form, with a proof that is made up."""
    return f"{'0' * 64} {rank} {value}"


def test_an_intruder_cannot_restart_a_job_by_the_key_that_asks_for_a_restart(job: Job) -> None:
    with training(job) as found:
        found.write(("wanted", "boom"), ("wanted", forged("boom")))
        found.one.says("warning: wanted in the round's store is ignored")
    assert (job.report().round, job.report().restarts) == ("1.1", 0)
    for pod in (found.zero, found.one):
        assert "stopping the workers" not in pod.text()
        assert [step for step, *_ in pod.steps()] == list(range(1, STEPS + 1)), "each step once"
    assert found.one.text().count("warning: wanted") == 1, "the log reports a key once"


def test_an_intruder_cannot_restart_or_end_a_job_that_has_no_coordinator(job: Job) -> None:
    with training(job, leaves=True) as found:
        found.write(("wanted", "boom"), ("done/0", "1"), ("done/1", "1"), ("go", '["127.0.0.1", 1]'))
    for pod in (found.zero, found.one):
        assert [step for step, *_ in pod.steps()] == list(range(1, STEPS + 1)), "each step once, and to the end"


def test_an_intruder_cannot_lead_the_members_to_a_master_of_its_own(job: Job) -> None:
    with socket.create_server(("127.0.0.9", 0)) as own, training(job, leaves=True) as found:
        own.setblocking(False)
        where = f'["127.0.0.9", {own.getsockname()[1]}]'
        found.write(*((key, forged(where, 0)) for key in ("go", "again/0", "again/1")))
        os.kill(found.one.worker(), signal.SIGKILL)
        found.zero.says("restarts 1")
        with pytest.raises(BlockingIOError):
            own.accept()
        job.lead()
    assert job.report().round == "1.1.1"


class Client:
    """The agent's connection to a coordinator that has assigned a round, and says nothing more."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.sent: list[Message] = []

    def update(self, change: Any) -> None:
        """Ignore what the coordinator would learn."""

    def send(self, message: Message) -> None:
        """Keep it."""
        self.sent.append(message)

    def away(self) -> float:
        """It answers."""
        return 0.0

    def absent(self) -> bool:
        return False

    def contact_at(self) -> float:
        """It has answered at some time."""
        return 0.0

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def membership() -> Iterator[Membership]:
    made = Membership(Client(), "127.0.0.1", 1.0)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with round_store.listen("127.0.0.1") as made:
        yield made


def _begin(membership: Membership, assigned: Assigned) -> None:
    listener = round_store.listen("127.0.0.1")
    membership._begin(assigned, listener, lambda session: session.begin(assigned, agreed=False), agreed=False)


@contextmanager
def _serving(listener: socket.socket, host: Assigned, *rounds: RoundId) -> Iterator[tuple[Assigned, Bystander]]:
    """A store of `host`, prepared for these rounds; the place of a member that was sent there, and its neighbour."""
    store, port = round_store.serve(listener), listener.getsockname()[1]
    for id_ in rounds:
        agreement.prepare(SignedStore(round_store.beside(store, f"pytorchjob/{id_}"), host))
    with neighbour("127.0.0.1", port) as bystander:
        yield replace(PLACE, master_port=port), bystander


@pytest.mark.parametrize(
    "host",
    [
        pytest.param(replace(PLACE, rank=0, secret=""), id="that guesses the secret"),
        pytest.param(replace(PLACE, rank=0, secret="other"), id="that knows another round's secret"),
        pytest.param(replace(PLACE, rank=0, round=RoundId(3, 8)), id="of a later round at the same port"),
    ],
)
def test_no_workers_start_in_a_store(
    membership: Membership, listener: socket.socket, host: Assigned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_store, "CONNECT_SECONDS", 0.5)

    def begin() -> None:
        with pytest.raises(PeerError, match=r"does not serve round 3\.7"):
            _begin(membership, place)
        assert membership.store is None
        assert [type(message) for message in membership.client.sent] == [Unreachable]  # type: ignore[attr-defined]
        membership.client.sent.clear()  # type: ignore[attr-defined]

    with _serving(listener, host, PLACE.round, host.round) as (place, bystander):
        bystander.while_repeated(begin)


def test_a_member_of_a_superseded_round_does_not_wait_for_its_store(
    membership: Membership, listener: socket.socket
) -> None:
    """Rank 0 took part in a later round instead, at the same port: no workers start, and nobody waits for a timeout."""
    later = replace(PLACE, rank=0, round=RoundId(3, 8), secret="other")

    def begin() -> None:
        membership.client.inbox = Inbox(round=PLACE.round, assigned=replace(later, rank=1))  # type: ignore[misc]
        with pytest.raises(PeerError, match=r"round.* has ended"):
            _begin(membership, place)

    with _serving(listener, later, later.round) as (place, bystander):
        bystander.while_repeated(begin)


def test_an_intruder_cannot_make_a_dead_member_seem_alive(listener: socket.socket) -> None:
    raw, seconds = round_store.serve(listener), count(1)
    zero, one = (SignedStore(raw, replace(PLACE, rank=rank)) for rank in (0, 1))
    agreement.prepare(zero)
    heartbeats = agreement.PeerHeartbeats(zero.assigned, 0.0)
    agreement.PeerHeartbeats(one.assigned, 0.0).exchange(one, lambda: 0.5)
    old = raw.get("heartbeat/1").decode()

    def replay() -> None:
        second = next(seconds)
        raw.set("heartbeat/1", forged(str(100 + second)) if second % 2 else old)
        heartbeats.exchange(zero, lambda: float(second))

    with neighbour("127.0.0.1", listener.getsockname()[1]) as bystander:
        for _ in range(9):
            replay()
        bystander.while_repeated(replay)
    now = float(next(seconds) - 1)
    assert heartbeats.heard(now).ranks == ()
    assert heartbeats.silence(now) > 5.0


class Link:
    """A connection of an agent that keeps what it receives."""

    def __init__(self, number: int) -> None:
        self.number, self.job, self.index = number, "", number
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        """Keep it."""
        self.sent.append(message)

    def hang_up(self) -> None:
        """Do nothing."""


def _job_with_two_members(
    lines: list[str], make: Callable[[int], Sequence[str]] = no_certificates
) -> tuple[Jobs, list[Link]]:
    """A job whose two agents wait for a round, and all that its coordinator records."""
    jobs = Jobs(
        3, lambda: 100.0, lambda _uid, _events: None, Limits(), lambda *item: lines.append(recording.line(*item))
    )
    jobs.make_certificates = make
    jobs.sync_job("job", JobSynced(Policy(2, 2), {index: ExpectedPod(f"pod-{index}") for index in (0, 1)}))
    links = [Link(0), Link(1)]
    for link in links:
        where = f"10.0.0.{link.number}"
        jobs.enter(link, Hello("job", f"pod-{link.number}", "token", link.number, where, 1, "first"))
        jobs.received(link, Join(1000 + link.number))
    return jobs, links


@pytest.mark.without_bystander("the intruder only reads")
def test_the_secret_of_a_round_reaches_its_members_and_no_log_state_or_recording() -> None:
    """Nor does its certificate, with which the members encrypt."""
    lines: list[str] = []
    jobs, links = _job_with_two_members(lines, lambda size: [os.urandom(32).hex() for _ in range(size)])
    first = [message for link in links for message in link.sent if isinstance(message, Assigned)]
    jobs.received(links[0], Failed(first[0].round, 0, 0, 1, "boom"))
    for link in links:
        jobs.received(link, Join(2000 + link.number, first[0].round))
    places = [message for link in links for message in link.sent if isinstance(message, Assigned)]
    rounds = {place.round for place in places}
    assert len(rounds) == 2
    for id_ in rounds:
        assert len({place.secret for place in places if place.round == id_}) == 1, (
            "all members of a round have the same"
        )
        assert len({place.certificate for place in places if place.round == id_}) == 2, "each member has its own"
    secrets = {secret for place in places for secret in (place.secret, place.certificate)}
    assert len(secrets) == 6, "each round has its own"
    shown = repr((places, jobs.state("job"), lines))
    assert not [secret for secret in secrets if len(secret) < 64 or secret in shown]
