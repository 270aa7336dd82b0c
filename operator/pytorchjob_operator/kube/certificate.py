"""The certificates of the coordinator and of the members of rounds: self-signed, so that no authority is needed.

This module creates and validates PEM text. It stores nothing, and time is an argument. Agents receive the coordinator's
certificate when their pod is created and trust only this certificate. Therefore a certificate from elsewhere must be
self-signed too.
"""

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME, member_name

LIFE = timedelta(days=3653)
_EARLY = timedelta(days=1)
"""The certificate is valid from this much before its creation: clocks of other nodes may be behind."""


def make(now: datetime) -> tuple[bytes, bytes]:
    """Create a certificate that is valid for ten years from `now`, and its private key; both are PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _signed(now, key.public_key(), key, _extensions(key.public_key())), _private(key)


def make_for_members(now: datetime, count: int) -> list[str]:
    """Create for each member of a round a certificate that names its rank, its private key, and what signed all; PEM.

    What signs them is new for each round and kept nowhere: no member can make the certificate of another one.
    """
    signer = ec.generate_private_key(ec.SECP256R1())
    usage = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False)
    authority = _signed(now, signer.public_key(), signer, [(x509.BasicConstraints(ca=True, path_length=0), True)])
    made = []
    for rank in range(count):
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME), x509.DNSName(member_name(rank))])
        certificate = _signed(now, key.public_key(), signer, [(names, False), usage], member_name(rank))
        made.append((certificate + _private(key) + authority).decode())
    return made


def _signed(
    now: datetime,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    extensions: list[tuple[x509.ExtensionType, bool]],
    subject: str = SERVER_NAME,
) -> bytes:
    issuer, name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (SERVER_NAME, subject))
    builder = x509.CertificateBuilder(issuer, name, key, x509.random_serial_number())
    builder = builder.not_valid_before(now - _EARLY).not_valid_after(now + LIFE)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _extensions(key: ec.EllipticCurvePublicKey) -> list[tuple[x509.ExtensionType, bool]]:
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return [
        (x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, **usage), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
    ]


def to_der(certificate_pem: bytes) -> bytes:
    """Return the first certificate of a PEM text as DER."""
    return x509.load_pem_x509_certificate(certificate_pem).public_bytes(serialization.Encoding.DER)


def validity(certificate_pem: bytes) -> tuple[datetime, datetime]:
    """Return the first and the last moment at which the certificate is valid."""
    found = x509.load_pem_x509_certificate(certificate_pem)
    return found.not_valid_before_utc, found.not_valid_after_utc


def made_at(certificate_pem: bytes) -> datetime:
    """Return when `make` created the certificate."""
    return validity(certificate_pem)[0] + _EARLY


def fault_of_certificate(pem: bytes, now: datetime) -> str | None:
    """Return why agents could not trust this certificate now; None if they can."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion) as error:
        return f"is not a PEM certificate: {error}"
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if ends <= now:
        return f"expired on {ends:%Y-%m-%d %H:%M} UTC"
    if now < begins:
        return f"is not valid before {begins:%Y-%m-%d %H:%M} UTC; check the clock of this node"
    if SERVER_NAME not in _names(certificate):
        return f"does not contain the DNS name {SERVER_NAME}, which agents verify"
    return (
        None if _self_signed(certificate) else "is not self-signed: agents trust only it, not the authority behind it"
    )


def fault_of_key(pem: bytes, certificate_pem: bytes) -> str | None:
    """Return why this is not the private key of the certificate; None if it is."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        return f"is not a PEM private key without a password: {error}"
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return None if key.public_key() == certificate.public_key() else "is not the key of the certificate"


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return []
    return found.value.get_values_for_type(x509.DNSName)


def _self_signed(certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True
