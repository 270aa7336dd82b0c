"""A pod's service account token: what proves a pod, and what proves nothing."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from pytorchjob_operator.kube.pod_token import (
    Expected,
    OutdatedError,
    PodClaims,
    TokenError,
    UnknownKeyError,
    read_keys,
    verify,
)
from tests.fakes.tokens import AUDIENCE, ISSUER, Signer, claims, encode, part

NOW = 1000.0
RSA = Signer()
EXPECTED = Expected(AUDIENCE, ISSUER)
KEYS = read_keys({"keys": [RSA.jwk()]})
POD = PodClaims("ns", "x-worker-0", "uid-worker-0", NOW)


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512"])
def test_a_token_signed_by_any_algorithm_of_the_key_set_proves_its_pod(algorithm: str) -> None:
    signer = Signer("key", algorithm)
    keys = read_keys({"keys": [signer.jwk()]})
    assert verify(signer.sign(claims()), keys, EXPECTED, NOW) == POD


@pytest.mark.parametrize(
    ("signer", "changes"),
    [
        pytest.param(RSA, {"alg": None}, id="RSA means RS256"),
        pytest.param(Signer("e", "ES384"), {"alg": None}, id="a curve has one algorithm"),
    ],
)
def test_a_key_without_an_algorithm_has_that_of_its_kind(signer: Signer, changes: dict[str, Any]) -> None:
    entry = {name: value for name, value in signer.jwk().items() if name not in changes}
    assert verify(signer.sign(claims()), read_keys({"keys": [entry]}), EXPECTED, NOW) == POD


def public_pem() -> bytes:
    made: bytes = RSA.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return made


def with_shared_secret() -> str:
    """A token whose signature is an HMAC with the public key, which everyone has."""
    signed = f"{part({'alg': 'HS256', 'kid': 'key-1'})}.{part(claims())}"
    return f"{signed}.{encode(hmac.new(public_pem(), signed.encode(), hashlib.sha256).digest())}"


def other_payload() -> str:
    """A good signature, of another payload."""
    head, _, signature = RSA.sign(claims()).split(".")
    return f"{head}.{part(claims('x-worker-1'))}.{signature}"


GOOD = RSA.sign(claims())
FORGED = [
    pytest.param("", id="nothing"),
    pytest.param("a.b", id="two parts"),
    pytest.param(GOOD + ".x", id="four parts"),
    pytest.param("..", id="three empty parts"),
    pytest.param("é.é.é", id="no ASCII"),
    pytest.param(encode(b"[" * 5000) + ".x.y", id="a header that is too deep"),
    pytest.param(part([1]) + ".x.y", id="a header that is a list"),
    pytest.param(GOOD[:-2], id="a signature that is cut"),
    pytest.param(GOOD.rpartition(".")[0] + ".", id="no signature"),
    pytest.param(other_payload(), id="another payload"),
    pytest.param(Signer("key-1b").sign(claims(), kid="key-1"), id="another private key"),
    pytest.param(f"{part({'alg': 'none', 'kid': 'key-1'})}.{part(claims())}.", id="algorithm none"),
    pytest.param(f"{part({'kid': 'key-1'})}.{part(claims())}.", id="no algorithm"),
    pytest.param(with_shared_secret(), id="the public key as a shared secret"),
    pytest.param(Signer("key-1", "RS512").sign(claims()), id="another algorithm of the same key"),
    pytest.param(RSA.sign(claims(), crit=["b64"]), id="an extension that must be understood"),
    pytest.param(RSA.sign(claims(aud="https://kubernetes.default.svc")), id="a token for the API server"),
    pytest.param(RSA.sign(claims(aud=None)), id="no audience"),
    pytest.param(RSA.sign(claims(aud=[])), id="an empty audience"),
    pytest.param(RSA.sign(claims(**{"kubernetes.io": None})), id="a token of no pod"),
    pytest.param(RSA.sign(claims(**{"kubernetes.io": {"namespace": "ns"}})), id="a user's token"),
    pytest.param(RSA.sign(claims("")), id="a pod without a name"),
    pytest.param(RSA.sign(claims(uid="")), id="a pod without a uid"),
    pytest.param(RSA.sign(claims(exp=None)), id="a token that never expires"),
    pytest.param(RSA.sign(claims(exp=True)), id="an expiry that is no time"),
    pytest.param(RSA.sign(claims(iat="x")), id="a time that is a text"),
]


@pytest.mark.parametrize("token", FORGED)
def test_what_proves_nothing(token: str) -> None:
    with pytest.raises(TokenError) as refused:
        verify(token, KEYS, EXPECTED, NOW)
    assert not isinstance(refused.value, UnknownKeyError | OutdatedError), "it is refused for good"


@pytest.mark.parametrize(
    ("changes", "outage", "words"),
    [
        pytest.param({"exp": NOW - 61}, 0, "has expired", id="expired"),
        pytest.param({"exp": NOW - 59}, 0, None, id="expired, within the difference of clocks"),
        pytest.param({"exp": NOW - 600}, 599, None, id="expired while the API server is away"),
        pytest.param({"exp": NOW - 600}, 500, "has expired", id="expired before the API server went"),
        pytest.param({"nbf": NOW + 61}, 0, "not valid yet", id="not valid yet"),
        pytest.param({"nbf": NOW + 59}, 0, None, id="not valid yet, within the difference of clocks"),
        pytest.param({"nbf": None}, 0, None, id="without a begin"),
        pytest.param({"iss": "https://elsewhere"}, 0, "issuer is not https://kubernetes", id="another issuer"),
        pytest.param({"iss": None}, 0, "issuer", id="no issuer"),
    ],
)
def test_times_and_the_issuer_may_be_right_later(changes: dict[str, Any], outage: float, words: str | None) -> None:
    token = RSA.sign(claims(**changes))
    if words is None:
        assert verify(token, KEYS, EXPECTED, NOW, outage) == POD
        return
    with pytest.raises(OutdatedError, match=words):
        verify(token, KEYS, EXPECTED, NOW, outage)


def test_an_issuer_that_is_unknown_is_not_compared() -> None:
    assert verify(RSA.sign(claims(iss="https://elsewhere")), KEYS, Expected(AUDIENCE), NOW) == POD


def test_an_audience_may_be_one_text() -> None:
    assert verify(RSA.sign(claims(aud=AUDIENCE)), KEYS, EXPECTED, NOW) == POD


def test_a_key_that_is_not_in_the_set_may_be_a_new_one() -> None:
    with pytest.raises(UnknownKeyError):
        verify(Signer("key-2").sign(claims()), KEYS, EXPECTED, NOW)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"use": "enc"}, id="a key for encryption"),
        pytest.param({"kty": "oct", "k": "c2VjcmV0"}, id="a shared secret"),
        pytest.param({"alg": "HS256"}, id="an RSA key for HMAC"),
        pytest.param({"alg": "none"}, id="an RSA key for no signature"),
        pytest.param({"alg": "ES256"}, id="an RSA key for a curve"),
        pytest.param({"n": "***"}, id="a number that is not base64url"),
        pytest.param({"n": 7}, id="a number that is no text"),
        pytest.param({"n": "AQ", "e": "AQ"}, id="numbers that are no key"),
        pytest.param({"kid": ""}, id="no name"),
        pytest.param({"kid": ["key-1"]}, id="a name that is a list"),
        pytest.param({"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}, id="a point that is not on the curve"),
        pytest.param({"kty": "EC", "crv": "secp256k1"}, id="another curve"),
        pytest.param({"kty": ["RSA"]}, id="a kind that is a list"),
    ],
)
def test_a_key_that_is_not_for_tokens_is_left_out(changes: dict[str, Any]) -> None:
    assert list(read_keys({"keys": [RSA.jwk(**changes), Signer("good", "ES256").jwk()]})) == ["good"]


@pytest.mark.parametrize("document", [{}, {"keys": None}, {"keys": "x"}, {"keys": [None, 7, []]}])
def test_a_set_without_keys_is_empty(document: dict[str, Any]) -> None:
    assert read_keys(json.loads(json.dumps(document))) == {}
