"""The coordinator's credentials: its certificate, the key of all agent tokens, and the Secret that stores both.

The Secret passes the credentials from one leader to the next. This module only converts: `app.secret` reads and
writes the Secret and supplies the time.
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
_MEND = "delete the Secret and restart the operator, which creates a new one. Agents of running jobs do not trust it:"
_PRICE = "they continue without the coordinator until their pods are recreated"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The key from which all agent tokens are made, and the coordinator's certificate with its private key."""

    key: bytes = field(repr=False)
    certificate_pem: bytes
    private_key_pem: bytes = field(repr=False)

    @property
    def ca(self) -> str:
        """The certificate that agents trust, as base64 of DER."""
        return base64.b64encode(certificate.to_der(self.certificate_pem)).decode()

    def server_context(self) -> ssl.SSLContext:
        """Create the TLS context of the coordinator; raises OperatorError if the certificate is unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with private_file(self.certificate_pem) as chain, private_file(self.private_key_pem) as key:
            try:
                context.load_cert_chain(chain, key)
            except ssl.SSLError as error:
                raise OperatorError(f"the coordinator's certificate cannot be used for TLS: {error}") from error
        return context


def make(now: datetime) -> Credentials:
    """Create new credentials that are valid for ten years from `now`."""
    return Credentials(secrets.token_bytes(KEY_BYTES), *certificate.make(now))


def to_secret(credentials: Credentials, namespace: str, name: str) -> Object:
    """Return the Secret. It is immutable: running pods carry tokens and a certificate that were made from it."""
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
    """Read a Secret that `to_secret` or a person wrote; an OperatorError names the Secret, the field and the fix."""
    key, chain, private = (_field(secret, name) for name in (KEY, CERTIFICATE, PRIVATE_KEY))
    if len(key) < KEY_BYTES:
        raise _broken(secret, KEY, f"has {len(key)} bytes; at least {KEY_BYTES} random bytes are required")
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
