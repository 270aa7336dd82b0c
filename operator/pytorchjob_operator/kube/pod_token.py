"""Verifies a pod's service account token without the API server: signature, audience, issuer, times. Pure.

A token is a JWT. The API server publishes its public keys as a JSON Web Key Set. The algorithm of a signature comes
from the key, never from the token: `none` and signatures with a shared secret do not exist here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt

_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
_MAX_KEYS = 100
_LEEWAY = 60.0
"""Seconds by which the clocks of this machine and of the API server may differ."""


class TokenError(ValueError):
    """A token that proves nothing. The text has the reason."""


class UnknownKeyError(TokenError):
    """The token names a key that is not in the set: the API server may have a new one."""


class OutdatedError(TokenError):
    """A token of this API server that is not valid now. A renewed one may be."""


Keys = Mapping[str, jwt.PyJWK]
"""The keys of an API server, by `kid`, each with the only algorithm that it is for."""


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


def read_keys(document: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """Read a JSON Web Key Set. Keys of other kinds are left out; an empty result means that there is no usable key."""
    listed = document.get("keys")
    entries = [_key(entry) for entry in listed[:_MAX_KEYS]] if isinstance(listed, list) else []
    return {str(key.key_id): key for key in entries if key is not None}


def _key(entry: Any) -> jwt.PyJWK | None:
    """Return a key that has a name and is for signatures of tokens; None for any other."""
    try:
        key = jwt.PyJWK(entry)
    except (jwt.PyJWTError, NotImplementedError, TypeError, ValueError, AttributeError):
        return None
    named = isinstance(key.key_id, str) and bool(key.key_id)
    return key if named and key.algorithm_name in _ALGORITHMS and key.public_key_use in (None, "sig") else None


def verify(token: str, keys: Keys, expected: Expected, now: float, outage: float = 0.0) -> PodClaims:
    """Return the pod that a token names; raises TokenError. `now` is in seconds since 1970.

    During an outage of the API server no kubelet can renew a token. `outage` is its length so far, in seconds: for as
    long an expired token is still accepted.
    """
    try:
        key = keys.get(str(jwt.get_unverified_header(token).get("kid")))
        if key is None:
            raise UnknownKeyError("the API server has no such key")
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=expected.audience,
            issuer=expected.issuer or None,
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_sub": False},
        )
    except jwt.InvalidIssuerError:
        raise OutdatedError(f"its issuer is not {expected.issuer}") from None
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise _refusal(error, expected) from None
    found = _pod(claims)
    _check_times(claims, now, outage)
    return found


def _refusal(error: Exception, expected: Expected) -> TokenError:
    match error:
        case TokenError():
            return error
        case jwt.MissingRequiredClaimError(claim="iss"):
            return OutdatedError(f"its issuer is not {expected.issuer}")
        case jwt.InvalidAudienceError() | jwt.MissingRequiredClaimError():
            return TokenError(f"its audience is not {expected.audience}")
        case jwt.InvalidSignatureError():
            return TokenError("its signature is wrong")
        case _:
            return TokenError(str(error))


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
    named = (own.get("namespace"), pod.get("name"), pod.get("uid"))
    namespace, name, uid = (value if isinstance(value, str) else "" for value in named)
    if not (namespace and name and uid):
        raise TokenError("it names no pod")
    return PodClaims(namespace, name, uid, issued_at=_time(claims, "iat"))


def _time(claims: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"its {name} is not a time")
    return float(value)
