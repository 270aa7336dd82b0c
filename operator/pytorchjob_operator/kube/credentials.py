"""What the coordinator proves itself and knows its agents with, and the Secret that carries it from one leader to the
next. It reads and writes no cluster, and no clock: whoever does gives it the Secret and the time.
"""

import base64
import binascii
import secrets
import ssl
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.kube.client import Object
from pytorchjob_operator.kube.config import private_file
from pytorchjob_operator.tokens import KEY_BYTES

KEY = "key"
CERTIFICATE = "tls.crt"
PRIVATE_KEY = "tls.key"
_MAX_FIELD = 64 * 1024
_MEND = "delete the Secret and restart the operator, which makes a new one; agents of jobs that run do not know it, so"
_PRICE = "until their pods are made anew they go on without the coordinator"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The key of all tokens, and the coordinator's certificate with its private key."""

    key: bytes = field(repr=False)
    certificate_pem: bytes
    private_key_pem: bytes = field(repr=False)

    @property
    def ca(self) -> str:
        """What agents trust: the certificate as base64 of DER."""
        return base64.b64encode(certificate.to_der(self.certificate_pem)).decode()

    def server_context(self) -> ssl.SSLContext:
        """Make the coordinator's side of TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with private_file(self.certificate_pem) as chain, private_file(self.private_key_pem) as key:
            try:
                context.load_cert_chain(chain, key)
            except ssl.SSLError as error:
                raise OperatorError(f"the coordinator's certificate cannot be used for TLS: {error}") from error
        return context


def make(now: datetime) -> Credentials:
    """Make new ones, valid from now for ten years."""
    return Credentials(secrets.token_bytes(KEY_BYTES), *certificate.make(now))


def to_secret(credentials: Credentials, namespace: str, name: str) -> Object:
    """Return the Secret that carries them. It cannot be edited, only deleted: pods carry what was made from it."""
    fields = {
        KEY: credentials.key,
        CERTIFICATE: credentials.certificate_pem,
        PRIVATE_KEY: credentials.private_key_pem,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in fields.items()},
    }


def from_secret(secret: Object, now: datetime) -> Credentials:
    """Read what `to_secret` wrote, or somebody by hand; an OperatorError names the Secret, the field and the cure."""
    key, chain, private = (_field(secret, name) for name in (KEY, CERTIFICATE, PRIVATE_KEY))
    if len(key) < KEY_BYTES:
        raise _broken(secret, KEY, f"has {len(key)} bytes, expected at least {KEY_BYTES} random ones")
    if fault := certificate.fault_of_certificate(chain, now):
        raise _broken(secret, CERTIFICATE, fault)
    if fault := certificate.fault_of_key(private, chain):
        raise _broken(secret, PRIVATE_KEY, fault)
    return Credentials(key, chain, private)


def _field(secret: Object, name: str) -> bytes:
    data: Any = secret.get("data")
    given = data.get(name) if isinstance(data, dict) else None
    if not isinstance(given, str) or not given:
        raise _broken(secret, name, "is missing")
    if len(given) > _MAX_FIELD:
        raise _broken(secret, name, f"is longer than {_MAX_FIELD} characters")
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _broken(secret, name, f"is not base64: {error}") from error


def _broken(secret: Object, name: str, fault: str) -> OperatorError:
    where = secret["metadata"]
    return OperatorError(f"Secret {where['namespace']}/{where['name']}: {name} {fault}; {_MEND} {_PRICE}")
