"""Verifies a pod's service account token without the API server: signature, audience, issuer, times. Pure.

A token is a JWT. The API server publishes its public keys as a JSON Web Key Set. The algorithm of a signature comes
from the key, never from the token: `none` and signatures with a shared secret do not exist here.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_RSA = {f"RS{bits}": hash_ for bits, hash_ in _HASHES.items()}
_CURVES: dict[str, tuple[str, ec.EllipticCurve]] = {
    "P-256": ("ES256", ec.SECP256R1()),
    "P-384": ("ES384", ec.SECP384R1()),
    "P-521": ("ES512", ec.SECP521R1()),
}
_EC = {f"ES{bits}": hash_ for bits, hash_ in _HASHES.items()}
_MAX_KEYS = 100
_LEEWAY = 60.0
"""Seconds by which the clocks of this machine and of the API server may differ."""


class TokenError(ValueError):
    """A token that proves nothing. The text has the reason."""


class UnknownKeyError(TokenError):
    """The token names a key that is not in the set: the API server may have a new one."""


class OutdatedError(TokenError):
    """A token of this API server that is not valid now. A renewed one may be."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One public key, with the only algorithm that it is for."""

    algorithm: str
    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey


Keys = Mapping[str, VerificationKey]
"""The keys of an API server, by `kid`."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must contain."""

    audience: str
    issuer: str = ""
    """Empty: unknown, then any."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The pod to which a verified token belongs."""

    namespace: str
    name: str
    uid: str
    issued_at: float
    """Seconds since 1970."""


def read_keys(document: Mapping[str, Any]) -> dict[str, VerificationKey]:
    """Read a JSON Web Key Set. Keys of other kinds are left out; an empty result means that there is no usable key."""
    listed = document.get("keys")
    found: dict[str, VerificationKey] = {}
    for entry in listed[:_MAX_KEYS] if isinstance(listed, list) else ():
        try:
            found[_text(entry["kid"])] = _key(entry)
        except (TokenError, KeyError, TypeError, ValueError, AttributeError, UnsupportedAlgorithm):
            continue
    return found


def verify(token: str, keys: Keys, expected: Expected, now: float, outage: float = 0.0) -> PodClaims:
    """Return the pod that a token names; raises TokenError. `now` is in seconds since 1970.

    During an outage of the API server no kubelet can renew a token. `outage` is its length so far, in seconds: for as
    long an expired token is still accepted.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenError("it is not a service account token")
    header = _object(parts[0], "header")
    key = keys.get(str(header.get("kid")))
    if key is None:
        raise UnknownKeyError("the API server has no such key")
    if header.get("alg") != key.algorithm or "crit" in header:
        raise TokenError(f"its algorithm is not {key.algorithm}")
    try:
        _check_signature(key, _bytes(parts[2], "signature"), f"{parts[0]}.{parts[1]}".encode("ascii", "replace"))
    except InvalidSignature:
        raise TokenError("its signature is wrong") from None
    claims = _object(parts[1], "payload")
    found = _pod(claims)
    _check_claims(claims, expected)
    _check_times(claims, now, outage)
    return found


def _check_signature(key: VerificationKey, signature: bytes, signed: bytes) -> None:
    match key.public:
        case rsa.RSAPublicKey():
            key.public.verify(signature, signed, padding.PKCS1v15(), _RSA[key.algorithm])
        case ec.EllipticCurvePublicKey():
            size = (key.public.curve.key_size + 7) // 8
            if len(signature) != 2 * size:
                raise InvalidSignature
            r, s = (int.from_bytes(half) for half in (signature[:size], signature[size:]))
            key.public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(_EC[key.algorithm]))


def _check_claims(claims: Mapping[str, Any], expected: Expected) -> None:
    audience = claims.get("aud")
    if expected.audience not in (audience if isinstance(audience, list) else [audience]):
        raise TokenError(f"its audience is not {expected.audience}")
    if expected.issuer and claims.get("iss") != expected.issuer:
        raise OutdatedError(f"its issuer is not {expected.issuer}")


def _check_times(claims: Mapping[str, Any], now: float, outage: float) -> None:
    if now + _LEEWAY < _time(claims, "nbf", default=0.0):
        raise OutdatedError("it is not valid yet: compare the clocks of the nodes")
    if now - _LEEWAY - outage >= _time(claims, "exp"):
        raise OutdatedError("it has expired: the kubelet of the pod's node has not renewed it")


def _pod(claims: Mapping[str, Any]) -> PodClaims:
    own = claims.get("kubernetes.io")
    pod = own.get("pod") if isinstance(own, dict) else None
    if not isinstance(own, dict) or not isinstance(pod, dict):
        raise TokenError("it names no pod")
    try:
        named = (_text(own["namespace"]), _text(pod["name"]), _text(pod["uid"]))
    except KeyError:
        raise TokenError("it names no pod") from None
    return PodClaims(*named, issued_at=_time(claims, "iat"))


def _time(claims: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"its {name} is not a time")
    return float(value)


def _key(entry: Mapping[str, Any]) -> VerificationKey:
    """Read one key; raises TokenError or ValueError for a key that is not for signatures of tokens."""
    if entry.get("use", "sig") != "sig":
        raise TokenError("the key is not for signatures")
    if entry["kty"] == "RSA":
        algorithm = _text(entry.get("alg", "RS256"))
        if algorithm not in _RSA:
            raise TokenError(f"{algorithm} is not for RSA keys")
        return VerificationKey(algorithm, rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key())
    if entry["kty"] != "EC":
        raise TokenError("neither RSA nor EC")
    algorithm, curve = _CURVES[_text(entry["crv"])]
    if entry.get("alg", algorithm) != algorithm:
        raise TokenError(f"the curve is for {algorithm}")
    numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve)
    return VerificationKey(algorithm, numbers.public_key())


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TokenError("a text is missing")
    return value


def _number(value: object) -> int:
    return int.from_bytes(_bytes(_text(value), "number"))


def _bytes(text: str, what: str) -> bytes:
    """Decode base64url without padding, and nothing else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenError(f"its {what} is not base64url") from None


def _object(part: str, what: str) -> dict[str, Any]:
    text = _bytes(part, what)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise TokenError(f"its {what} is not JSON") from None
    if not isinstance(value, dict):
        raise TokenError(f"its {what} is not an object")
    return value
