"""Which pod an agent is: by its token, and by what the cache knows of that pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Hello
from pytorchjob_operator.app.pod_identity import PodIdentity
from pytorchjob_operator.coordinator.authentication import Rejection
from pytorchjob_operator.kube.pod_token import Keys, read_keys
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.observed import Pod, PodPhase
from tests.factories import JOB_UID, make_pod
from tests.fakes.tokens import ISSUER, Signer, claims

NOW = 1000.0
SIGNER = Signer()
OWN = SIGNER.sign(claims())


@dataclass
class FakeKeys:
    """Keys that count how often they were asked for again."""

    keys: Keys = field(default_factory=lambda: read_keys({"keys": [SIGNER.jwk()]}))
    issuer: str = ISSUER
    refreshed: int = 0

    def refresh(self) -> None:
        self.refreshed += 1


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def judge(
    token: str = OWN,
    *seen: Pod,
    address: str = "10.0.0.1",
    keys: FakeKeys | None = None,
    check: bool = True,
    **hello: Any,
) -> Rejection | None:
    """What the coordinator says to worker 0, which has this token; without pods, the cache has worker 0 as it is."""
    pods = Store[Pod](lambda: 0.0)
    for pod in seen or (make_pod("worker-0", addresses=("10.0.0.1",)),):
        pods.put(pod)
    given: Mapping[str, Any] = {"job": JOB_UID, "pod": "x-worker-0", "pod_uid": "uid-worker-0"} | hello
    said = Hello(token=token, index=1, address="10.0.0.1", nproc=1, incarnation="i", **given)
    identity = PodIdentity(keys or FakeKeys(), pods, lambda: 0.0, check, lambda: NOW)
    return identity.reject(said, address)


def worker(**fields: Any) -> Pod:
    return make_pod("worker-0", **fields)


@pytest.mark.parametrize(
    ("seen", "address"),
    [
        pytest.param(worker(addresses=("10.0.0.1",)), "10.0.0.1", id="from its address"),
        pytest.param(worker(addresses=("fd00::1", "10.0.0.1")), "::ffff:10.0.0.1", id="from one of two, by IPv6"),
        pytest.param(worker(addresses=("fd00::1",)), "fd00:0::1%eth0", id="written in another way"),
        pytest.param(worker(), "10.0.0.9", id="before the kubelet has reported an address"),
        pytest.param(worker(deleting=True, deleted_at=at(NOW + 30)), "10.0.0.1", id="in its grace period"),
        pytest.param(worker(phase=PodPhase.PENDING), "10.0.0.1", id="before its phase is Running"),
        pytest.param(worker(phase=PodPhase.UNKNOWN), "10.0.0.1", id="while its node is silent"),
    ],
)
def test_a_pod_is_known_by_its_token(seen: Pod, address: str) -> None:
    assert judge(OWN, seen, address=address) is None


REFUSED = [
    pytest.param({"token": SIGNER.sign(claims("x-worker-1", "uid-worker-1"))}, "belongs to pod ns/x-worker-1", id="p"),
    pytest.param({"token": SIGNER.sign(claims(uid="uid-b"))}, "uid uid-b", id="another uid than it says"),
    pytest.param({"pod_uid": ""}, "with uid uid-worker-0", id="no uid"),
    pytest.param({"token": SIGNER.sign(claims(aud="other"))}, "audience", id="a token for another audience"),
    pytest.param({"token": "0" * 64}, "token: wrong", id="no token at all"),
    pytest.param({"job": "uid-y"}, "belongs to another job", id="another job"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_is_not_this_pods_is_refused_for_good_and_shown_at_the_job(changes: dict[str, Any], words: str) -> None:
    rejection = judge(changes.pop("token", OWN), **changes)
    assert rejection is not None
    assert words in rejection.refused.message
    assert (rejection.refused.again, rejection.refused.fenced) == (False, False)
    assert "'x-worker-0' has a wrong token" in rejection.report


NEWER = worker(uid="uid-b", created_at=at(NOW))
OLDER = worker(uid="uid-b", created_at=at(NOW - 1))
FENCED = [
    pytest.param(NEWER, "was replaced by a newer pod", id="replaced"),
    pytest.param(worker(phase=PodPhase.FAILED), "has ended: Failed", id="failed"),
    pytest.param(worker(phase=PodPhase.SUCCEEDED), "has ended: Succeeded", id="succeeded"),
    pytest.param(worker(deleting=True, deleted_at=at(NOW - 61)), "grace period is over", id="deleted long ago"),
]


@pytest.mark.parametrize(("seen", "words"), FENCED)
def test_a_pod_whose_time_is_over_is_fenced(seen: Pod, words: str) -> None:
    rejection = judge(OWN, seen)
    assert rejection is not None
    assert words in rejection.refused.message
    assert rejection.refused.fenced
    assert rejection.report == ""


LATER = [
    pytest.param({"seen": make_pod("worker-1")}, "does not know this pod yet", False, id="younger than the cache"),
    pytest.param({"seen": OLDER}, "does not know this pod yet", False, id="the cache has its predecessor"),
    pytest.param({"token": Signer("key-2").sign(claims())}, "no such key", False, id="a key that may be new"),
    pytest.param({"token": SIGNER.sign(claims(exp=NOW - 90))}, "has expired", True, id="an expired token"),
    pytest.param({"token": SIGNER.sign(claims(iss="i"))}, "its issuer is not", True, id="an issuer that may be new"),
    pytest.param({"address": "10.0.0.2"}, "comes from 10.0.0.2, and x-worker-0 has 10.0.0.1", True, id="elsewhere"),
    pytest.param({"address": ""}, "comes from , and", True, id="from nowhere"),
]


@pytest.mark.parametrize(("case", "words", "shown"), LATER)
def test_what_may_be_right_later_is_asked_to_try_again(case: dict[str, Any], words: str, shown: bool) -> None:
    seen = (case.pop("seen"),) if "seen" in case else ()
    rejection = judge(case.pop("token", OWN), *seen, **case)
    assert rejection is not None
    assert words in rejection.refused.message
    assert rejection.refused.again
    assert bool(rejection.report) is shown


def test_a_key_that_may_be_new_is_asked_for() -> None:
    keys = FakeKeys()
    judge(Signer("key-2").sign(claims()), keys=keys)
    judge(OWN, keys=keys)
    assert keys.refreshed == 1


def test_a_cluster_that_translates_addresses_may_switch_their_check_off() -> None:
    assert judge(address="10.0.0.2", check=False) is None
