"""The Secret of the coordinator: what is written can be read, and what is broken is named."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube import certificate, credentials

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MADE = credentials.make(NOW)


def secret() -> Any:
    """A good one, as the API server gives it."""
    return json.loads(json.dumps(credentials.to_secret(MADE, "system", "coordinator")))


def test_what_is_written_is_read() -> None:
    assert credentials.from_secret(secret(), NOW) == MADE


def test_no_two_are_alike() -> None:
    other = credentials.make(NOW)
    assert other.ca != MADE.ca


def test_the_secret_is_marked_as_the_operators_own() -> None:
    assert secret()["metadata"] == {
        "name": "coordinator",
        "namespace": "system",
        "annotations": {"training.kubeflow.org/rotated": "true"},
    }


def days(count: float) -> datetime:
    return NOW + timedelta(days=count)


def test_first_the_next_certificate_is_published_and_nothing_else_changes() -> None:
    found = credentials.rotate(MADE, NOW)
    assert (found.certificate_pem, found.private_key_pem) == (MADE.certificate_pem, MADE.private_key_pem)
    known = base64.b64decode(found.ca)
    assert known == certificate.to_der(found.certificate_pem) + certificate.to_der(found.next_certificate_pem)
    assert credentials.from_secret(credentials.to_secret(found, "system", "coordinator"), NOW) == found


PUBLISHED = credentials.rotate(MADE, NOW)


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        pytest.param(0, False, id="it has just been published"),
        pytest.param(364, False, id="not yet a year ago"),
        pytest.param(366, True, id="a year ago"),
    ],
)
def test_the_next_certificate_is_used_once_pods_have_known_it_for_a_year(after: int, changes: bool) -> None:
    found = credentials.rotate(PUBLISHED, days(after))
    assert (found != PUBLISHED) is changes
    if changes:
        assert found.certificate_pem == PUBLISHED.next_certificate_pem
        assert found.next_certificate_pem not in (b"", PUBLISHED.next_certificate_pem)
        assert credentials.rotate(found, days(after + 364)) == found


def test_a_certificate_that_expires_soon_is_replaced_at_once() -> None:
    late = credentials.rotate(MADE, days(3640))
    assert credentials.rotate(late, days(3640)).certificate_pem == late.next_certificate_pem


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda body: body["metadata"].pop("annotations"), id="one that somebody else wrote"),
        pytest.param(lambda body: body.update(immutable=True), id="one that cannot be changed"),
    ],
)
def test_a_secret_that_is_not_the_operators_to_change_stays(change: Callable[[Any], Any]) -> None:
    body = secret()
    change(body)
    found = credentials.from_secret(body, NOW)
    assert credentials.rotate(found, days(4000)) is found


def test_pods_reach_the_coordinator_for_a_year_whenever_they_are_created() -> None:
    """A pod trusts what it knew when it was created; the coordinator uses one of these for a year at least."""
    used, trusted, served = PUBLISHED, list[tuple[int, str]](), set[bytes]()
    for day in range(0, 1500, 30):
        used = credentials.rotate(used, days(day))
        trusted.append((day, used.ca))
        serving = certificate.to_der(used.certificate_pem)
        young = [ca for made, ca in trusted if made >= day - 365]
        assert all(serving in base64.b64decode(ca) for ca in young)
        served.add(serving)
    assert len(served) == 4, "each year another one"


def test_agents_are_told_the_certificate_as_der() -> None:
    assert base64.b64decode(MADE.ca, validate=True) == certificate.to_der(MADE.certificate_pem)


def test_what_is_secret_is_not_printed() -> None:
    assert "PRIVATE KEY" not in repr(MADE)


def field(name: str, value: bytes | None) -> Callable[[Any], None]:
    """Give a field another value; None: take it away."""

    def change(body: Any) -> None:
        del body["data"][name]
        if value is not None:
            body["data"][name] = base64.b64encode(value).decode()

    return change


def raw(name: str, value: object) -> Callable[[Any], None]:
    return lambda body: body["data"].update({name: value})


OTHER_PEM, OTHER_KEY = certificate.make(NOW)
EXPIRED_PEM, EXPIRED_KEY = certificate.make(NOW - timedelta(days=3700))
BROKEN = [
    pytest.param(lambda body: body.pop("data"), "tls.crt is missing", id="no data at all"),
    pytest.param(field("tls.crt", None), "tls.crt is missing", id="no certificate"),
    pytest.param(field("tls.key", None), "tls.key is missing", id="no private key"),
    pytest.param(field("tls.key", b""), "tls.key is missing", id="an empty field"),
    pytest.param(raw("tls.crt", "***"), "tls.crt is not base64", id="a field that is not base64"),
    pytest.param(raw("tls.crt", 7), "tls.crt is missing", id="a field that is no text"),
    pytest.param(raw("tls.crt", "A" * 100_000), "tls.crt is longer than 65536", id="a field beyond all bounds"),
    pytest.param(field("tls.crt", b"no"), "tls.crt is not a PEM certificate", id="a certificate that is not PEM"),
    pytest.param(field("tls.crt", EXPIRED_PEM), "tls.crt expired on 2029-11-15", id="an expired certificate"),
    pytest.param(field("tls.key", b"no"), "tls.key is not a PEM private key", id="a private key that is not PEM"),
    pytest.param(field("tls.key", OTHER_KEY), "tls.key is not the key of the certificate", id="another private key"),
    pytest.param(
        lambda body: body["data"].update({"next.crt": "QQ=="}), "next.key is missing", id="half of a next one"
    ),
]


@pytest.mark.parametrize(("change", "words"), BROKEN)
def test_what_is_broken_is_named_with_what_to_do(change: Callable[[Any], None], words: str) -> None:
    body = secret()
    change(body)
    with pytest.raises(OperatorError) as refused:
        credentials.from_secret(body, NOW)
    assert str(refused.value).startswith(f"Secret system/coordinator: {words}")
    assert "delete the Secret and restart the operator" in str(refused.value)
