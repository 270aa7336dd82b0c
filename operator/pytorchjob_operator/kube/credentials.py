"""The coordinator's credentials: its certificate, the next one, and the Secret that stores both.

The Secret passes the credentials from one leader to the next. Agents trust both certificates, so that the coordinator
can change from one to the other (`rotate`). This module only converts and decides: `app.secret` reads and writes the
Secret and supplies the time.
"""

import base64
import binascii
import ssl
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.kube.client import Object
from pytorchjob_operator.kube.endpoint import private_file

CERTIFICATE = "tls.crt"
PRIVATE_KEY = "tls.key"
NEXT_CERTIFICATE = "next.crt"
NEXT_PRIVATE_KEY = "next.key"
ROTATED = names.ANNOTATION_ROTATED
"""Marks a Secret that the operator made for itself: it may change this one."""
ROTATE_AFTER = timedelta(days=365)
"""How long a certificate is known to new pods before it is used, and how long it is used then."""
_LAST_DAYS = timedelta(days=30)
"""A certificate is replaced this long before it expires, however short the next one is known."""
_MAX_FIELD = 64 * 1024
_MEND = "delete the Secret and restart the operator, which creates a new one. Agents of running jobs do not trust it:"
_PRICE = "they continue without the coordinator until their pods are recreated"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The coordinator's certificate with its private key, and those that follow."""

    certificate_pem: bytes
    private_key_pem: bytes = field(repr=False)
    next_certificate_pem: bytes = b""
    """Empty: no certificate follows yet."""
    next_private_key_pem: bytes = field(default=b"", repr=False)
    rotated: bool = False
    """Whether the operator may change the Secret."""

    @property
    def ca(self) -> str:
        """The certificates that agents trust, as base64 of their DER, one after the other."""
        known = (pem for pem in (self.certificate_pem, self.next_certificate_pem) if pem)
        return base64.b64encode(b"".join(certificate.to_der(pem) for pem in known)).decode()

    @property
    def expiry(self) -> datetime:
        """When the certificate in use expires."""
        return certificate.validity(self.certificate_pem)[1]

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
    """Create new credentials that are valid for ten years from `now`, without a certificate that follows."""
    return Credentials(*certificate.make(now), rotated=True)


def rotate(current: Credentials, now: datetime) -> Credentials:
    """Return the credentials that should be used from now on; the same ones if nothing has to change.

    A pod knows the certificate in use when it is created, and the next one. A new certificate is published first, and
    used a year later. So a pod reaches the coordinator for at least a year.
    """
    if not current.rotated:
        return current
    if not current.next_certificate_pem:
        following = certificate.make(now)
        return replace(current, next_certificate_pem=following[0], next_private_key_pem=following[1])
    published = certificate.made_at(current.next_certificate_pem)
    if now < min(published + ROTATE_AFTER, current.expiry - _LAST_DAYS):
        return current
    used = (current.next_certificate_pem, current.next_private_key_pem)
    return Credentials(*used, *certificate.make(now), rotated=True)


def to_secret(credentials: Credentials, namespace: str, name: str) -> Object:
    """Return the Secret, with the mark by which the operator may change it."""
    fields = {
        CERTIFICATE: credentials.certificate_pem,
        PRIVATE_KEY: credentials.private_key_pem,
        NEXT_CERTIFICATE: credentials.next_certificate_pem,
        NEXT_PRIVATE_KEY: credentials.next_private_key_pem,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "annotations": {ROTATED: "true"}},
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in fields.items() if value},
    }


def from_secret(secret: Object, now: datetime) -> Credentials:
    """Read a Secret that `to_secret` or a person wrote; an OperatorError names the Secret, the field and the fix."""
    used = _pair(secret, CERTIFICATE, PRIVATE_KEY, now)
    follows = bool((secret.get("data") or {}).get(NEXT_CERTIFICATE))
    following = _pair(secret, NEXT_CERTIFICATE, NEXT_PRIVATE_KEY, now) if follows else (b"", b"")
    marked = ((secret.get("metadata") or {}).get("annotations") or {}).get(ROTATED) == "true"
    return Credentials(*used, *following, rotated=marked and not secret.get("immutable"))


def _pair(secret: Object, certificate_name: str, key_name: str, now: datetime) -> tuple[bytes, bytes]:
    """Return a certificate and its private key."""
    chain, private = _field(secret, certificate_name), _field(secret, key_name)
    if fault := certificate.fault_of_certificate(chain, now):
        raise _broken(secret, certificate_name, fault)
    if fault := certificate.fault_of_key(private, chain):
        raise _broken(secret, key_name, fault)
    return chain, private


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
