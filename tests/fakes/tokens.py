"""Service account tokens as an API server signs them, and as an attacker would forge them."""

import base64
import functools
import json
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER = "https://kubernetes.default.svc"
AUDIENCE = "pytorchjob-operator"
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
_NAMES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_HASHES: dict[str, Any] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Any) -> str:
    """One part of a token."""
    return encode(json.dumps(value).encode())


@functools.cache
def _private(algorithm: str, name: str) -> Any:
    """A key of this name, made once: RSA keys take long."""
    if algorithm.startswith("RS"):
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(_CURVES[algorithm])


@dataclass(frozen=True)
class Signer:
    """One key pair of an API server."""

    kid: str = "key-1"
    algorithm: str = "RS256"

    @property
    def private(self) -> Any:
        """The private key."""
        family = "RS256" if self.algorithm.startswith("RS") else self.algorithm
        return _private(family, self.kid)

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """The public key, as /openid/v1/jwks has it."""
        numbers, entry = self.private.public_key().public_numbers(), {"use": "sig", "kid": self.kid}
        if self.algorithm.startswith("RS"):
            entry |= {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        else:
            size = (self.private.curve.key_size + 7) // 8
            x, y = encode(numbers.x.to_bytes(size)), encode(numbers.y.to_bytes(size))
            entry |= {"kty": "EC", "crv": _NAMES[self.algorithm], "x": x, "y": y}
        return entry | {"alg": self.algorithm} | changes

    def sign(self, claims: Any, **header: Any) -> str:
        """A token with these claims; keywords replace fields of its header."""
        head = {"alg": self.algorithm, "kid": self.kid} | header
        signed = f"{part(head)}.{part(claims)}"
        return f"{signed}.{encode(self.signature(signed.encode()))}"

    def signature(self, signed: bytes) -> bytes:
        """The signature of these bytes."""
        hash_ = _HASHES[self.algorithm[2:]]
        if self.algorithm.startswith("RS"):
            made: bytes = self.private.sign(signed, padding.PKCS1v15(), hash_)
            return made
        size = (self.private.curve.key_size + 7) // 8
        r, s = decode_dss_signature(self.private.sign(signed, ec.ECDSA(hash_)))
        return r.to_bytes(size) + s.to_bytes(size)


def _number(value: int) -> str:
    return encode(value.to_bytes((value.bit_length() + 7) // 8))


def claims(name: str = "x-worker-0", uid: str = "uid-worker-0", *, now: float = 1000.0, **changes: Any) -> Any:
    """The claims of a token of a pod in namespace ns; keywords replace some, None takes one away."""
    made = {
        "aud": [AUDIENCE],
        "exp": now + 3600,
        "iat": now,
        "nbf": now,
        "iss": ISSUER,
        "sub": "system:serviceaccount:ns:default",
        "kubernetes.io": {
            "namespace": "ns",
            "node": {"name": "node-1", "uid": "uid-node-1"},
            "pod": {"name": name, "uid": uid},
            "serviceaccount": {"name": "default", "uid": "uid-default"},
        },
    }
    return {key: value for key, value in (made | changes).items() if value is not None}
