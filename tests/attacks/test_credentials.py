"""An intruder wants to be a pod of another user's job: to take a rank, to stop the job, or to learn how it trains.

It may read every pod through the API server (`view`), run pods of its own, and keep whatever it once saw. Worker 0 of
the job trains meanwhile. After each attack it still has its place, and nobody else has one.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import TOKEN_LIMIT, Hello, Refused
from pytorchjob_operator.app.pod_identity import PodIdentity
from pytorchjob_operator.kube.pod_token import Keys, read_keys
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.observed import CoordinatorAccess, Options, Pod, PodPhase
from pytorchjob_operator.plan.pods import build_pod
from pytorchjob_operator.rounds.state import JobSynced
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.attacks.agents import beating
from tests.attacks.bystander import timed_async, watching
from tests.coordinator.talking import JOB, House, Talker, hello, house, pod
from tests.factories import full_job, make_pod, replica
from tests.fakes.tokens import ISSUER, Signer, claims, encode, part

SIGNER = Signer()
NOW = 1_000_000.0
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"


class PublicKeys:
    """The API server's keys; counts how often they were asked for again."""

    keys: Keys = read_keys({"keys": [SIGNER.jwk()]})
    issuer = ISSUER

    def __init__(self) -> None:
        self.asked = 0

    def refresh(self) -> None:
        self.asked += 1


class Scene:
    """A coordinator of a cluster, and the pods that it knows: those of the attacked job, and one of a calm job."""

    def __init__(self) -> None:
        self.keys, self.pods = PublicKeys(), Store[Pod](lambda: 0.0)
        self.identity = PodIdentity(self.keys, self.pods, lambda: 0.0, clock=lambda: NOW)
        self.home: House
        self._attempts: list[tuple[Hello, str]] = []
        for index in (0, 1):
            self.change(index)
        self.pods.put(make_pod("worker-0", name="calm", uid="uid-calm", owner_uid="calm-job", addresses=(HERE,)))
        self._calm = hello(job="calm-job", pod="calm", pod_uid="uid-calm", token=SIGNER.sign(made("calm", "uid-calm")))

    def change(self, index: int, **fields: Any) -> None:
        """The cache has a newer state of a pod of the job."""
        known = self.pods.get("ns", pod(index))
        version = known.resource_version + 1 if known else 1
        given = {"name": pod(index), "uid": f"uid-{index}", "owner_uid": JOB, "addresses": (HERE,)} | fields
        self.pods.put(make_pod(f"worker-{index}", resource_version=version, **given))

    async def intrude(self, said: Hello, address: str = HERE) -> Refused:
        """Say it from this address; return the refusal, after which the connection is closed."""
        self._attempts.append((said, address))
        return await self._attempt(said, address)

    async def _attempt(self, said: Hello, address: str) -> Refused:
        reader, writer = await asyncio.open_connection(HERE, self.home.port, local_addr=(address, 0))
        intruder = Talker(reader, writer).say(said)
        refused = await intruder.hear()
        assert isinstance(refused, Refused), "the intruder was let in"
        assert await intruder.hear() is None
        intruder.cut()
        return refused

    async def intrude_again(self) -> None:
        """Repeat all that was tried."""
        for said, address in self._attempts:
            await self._attempt(said, address)

    async def calm_pod_comes(self) -> None:
        """An honest pod of another job connects, proves who it is, and leaves."""
        talker = (await Talker.dial(self.home.port)).say(self._calm)
        await talker.hear_kind("welcome")
        talker.cut()

    def check(self) -> None:
        """Nothing has changed: worker 0 is connected, and nobody else is a member."""
        state = self.home.jobs.state(JOB)
        assert state is not None
        assert [(index, member.incarnation) for index, member in state.members.items()] == [(0, "first-0")]
        assert state.members[0].connection is not None


def own(index: int, **changes: Any) -> str:
    """The token that the kubelet has put into a pod of the job."""
    return SIGNER.sign(made(pod(index), f"uid-{index}", **changes))


def made(name: str = pod(1), uid: str = "uid-1", **changes: Any) -> Any:
    return claims(name, uid, now=NOW, **changes)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """A member of the job trains, and another job's pod comes again and again."""
    job = Scene()
    async with house(authenticator=job.identity, members=2) as home:
        job.home = home
        home.jobs.sync_job("calm-job", JobSynced(Policy(1, 1), {0: ExpectedPod("calm", "uid-calm")}))
        worker = await home.member(0, token=own(0))
        calm = "a pod of another job: from its connection to its welcome"
        async with beating(worker), watching(calm, lambda: timed_async(job.calm_pod_comes)) as bystander:
            yield job
            await bystander.during(job.intrude_again)
        job.check()


async def test_an_intruder_that_reads_the_pod_through_the_api_server_finds_no_credential() -> None:
    options = Options(coordinator=CoordinatorAccess("coordinator:29600", "Y2E="))
    shown = build_pod(full_job(), replica("worker-0"), options)
    values = {str(variable.get("value", "")) for variable in shown["spec"]["containers"][0]["env"]}
    async with scene() as job:
        for value in values:
            assert "token: wrong" in (await job.intrude(hello(1, token=value))).message
    assert len(values) > 5


async def test_an_intruder_with_a_pod_of_its_own_cannot_use_the_token_of_that_pod() -> None:
    thief = SIGNER.sign(made("thief", "uid-thief"))
    async with scene() as job:
        job.pods.put(make_pod("worker-7", name="thief", uid="uid-thief", owner_uid=None, addresses=(HERE,)))
        for changes in ({}, {"pod_uid": "uid-thief"}):
            assert "belongs to pod ns/thief" in (await job.intrude(hello(1, token=thief, **changes))).message
        refused = await job.intrude(hello(1, token=thief, pod="thief", pod_uid="uid-thief"))
        assert "its pod belongs to another job" in refused.message


async def test_a_member_cannot_take_the_place_of_another_member_of_its_job() -> None:
    async with scene() as job:
        assert "belongs to pod" in (await job.intrude(hello(0, token=own(1)))).message
        refused = await job.intrude(hello(0, token=own(1), pod=pod(1), pod_uid="uid-1"))
        assert "index: 0 is not the index of tiny-worker-1" in refused.message


async def test_a_pod_of_the_same_name_in_another_namespace_is_not_the_member() -> None:
    mine = made()
    mine["kubernetes.io"]["namespace"] = "mine"
    async with scene() as job:
        job.pods.put(make_pod("worker-1", name=pod(1), namespace="mine", uid="uid-1", owner_uid="my-job"))
        assert "belongs to another job" in (await job.intrude(hello(1, token=SIGNER.sign(mine)))).message


async def test_the_token_that_a_pod_has_for_the_api_server_does_not_open_the_coordinator() -> None:
    async with scene() as job:
        refused = await job.intrude(hello(1, token=own(1, aud=["https://kubernetes.default.svc"])))
        assert "its audience is not pytorchjob-operator" in refused.message


def unsigned() -> str:
    return f"{part({'alg': 'none', 'kid': SIGNER.kid})}.{part(made())}."


def signed_with_the_public_key() -> str:
    signed = f"{part({'alg': 'HS256', 'kid': SIGNER.kid})}.{part(made())}"
    public = base64.urlsafe_b64decode(str(SIGNER.jwk()["n"]) + "==")
    return f"{signed}.{encode(hmac.new(public, signed.encode(), hashlib.sha256).digest())}"


def signed_with_a_key_of_the_intruder() -> str:
    return Signer("intruder", "ES256").sign(made(), kid=SIGNER.kid, alg="RS256")


def claims_changed_after_the_signature() -> str:
    head, _, signature = own(0).split(".")
    return f"{head}.{part(made())}.{signature}"


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(unsigned, id="unsigned"),
        pytest.param(signed_with_the_public_key, id="signed with the public key"),
        pytest.param(signed_with_a_key_of_the_intruder, id="signed with a key of the intruder"),
        pytest.param(claims_changed_after_the_signature, id="claims changed after the signature"),
    ],
)
async def test_a_forged_token_proves_nothing(forge: Callable[[], str]) -> None:
    async with scene() as job:
        assert "token: wrong" in (await job.intrude(hello(1, token=forge()))).message


async def test_an_intruder_cannot_bring_its_own_key() -> None:
    mine = Signer("https://intruder/key", "ES256")
    token = mine.sign(made(), jwk=mine.jwk(), jku="https://intruder/keys")
    async with scene() as job:
        refused = await job.intrude(hello(1, token=token))
        assert ("no such key" in refused.message, refused.again) == (True, True)


async def test_a_stolen_token_does_not_work_from_another_pod() -> None:
    async with scene() as job:
        refused = await job.intrude(hello(1, token=own(1)), ELSEWHERE)
        assert f"comes from {ELSEWHERE}, and {pod(1)} has {HERE}" in refused.message


async def test_the_token_of_a_pod_that_was_replaced_does_not_take_the_place_of_the_new_pod() -> None:
    async with scene() as job:
        job.change(1, uid="uid-1b", created_at=datetime.fromtimestamp(NOW + 1, UTC))
        assert (await job.intrude(hello(1, token=own(1)))).fenced


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"phase": PodPhase.FAILED}, id="failed"),
        pytest.param({"phase": PodPhase.SUCCEEDED}, id="succeeded"),
        pytest.param({"deleting": True, "deleted_at": datetime.fromtimestamp(NOW - 600, UTC)}, id="deleted long ago"),
    ],
)
async def test_a_token_that_outlives_its_pod_is_worth_nothing(fields: dict[str, Any]) -> None:
    async with scene() as job:
        job.change(1, **fields)
        assert (await job.intrude(hello(1, token=own(1)))).fenced


async def test_a_token_of_a_pod_that_is_gone_is_worth_nothing() -> None:
    async with scene() as job:
        job.pods.gone("ns", pod(1), "uid-1")
        assert "does not know this pod" in (await job.intrude(hello(1, token=own(1)))).message


async def test_an_expired_token_is_worth_nothing() -> None:
    async with scene() as job:
        assert "has expired" in (await job.intrude(hello(1, token=own(1, exp=NOW - 90)))).message


async def test_a_job_that_was_created_again_under_its_name_is_closed_to_pods_of_the_former_one() -> None:
    async with scene() as job:
        job.change(1, owner_uid="the-former-job")
        assert "its pod belongs to another job" in (await job.intrude(hello(1, token=own(1)))).message


async def test_huge_and_broken_tokens_neither_stop_nor_slow_the_coordinator() -> None:
    broken = ["." * TOKEN_LIMIT, f"{encode(b'[' * 4000)}.{encode(b'{' * 1000)}.x", "a.b.c", "ü.\ud800.x", "9" * 8000]
    async with scene() as job:
        for token in broken:
            assert "token: wrong" in (await job.intrude(hello(1, token=token))).message
        await asyncio.wait_for(_heard(await job.home.dial(), hello(0, token=own(0))), 5)


async def _heard(talker: Talker, said: Hello) -> None:
    await talker.say(said).hear_kind("welcome")


@pytest.mark.without_bystander("no attack", attack=False)
async def test_the_rightful_pod_comes_in_by_the_same_way() -> None:
    async with house(authenticator=Scene().identity) as home:
        await home.member(0, token=own(0))
        await home.member(1, token=own(1))
