"""The coordinator's certificate: agents that trust only it reach the coordinator, other clients do not."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_operator.app.operator import now
from pytorchjob_operator.kube import certificate, credentials
from pytorchjob_operator.kube.credentials import Credentials

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PEM, KEY = certificate.make(NOW)
OTHER_PEM, OTHER_KEY = certificate.make(NOW)


def signed(name: str, by: str, *, dns: bool = True) -> bytes:
    """A certificate for a name, with an authority's name on it."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]) for common_name in (name, by)]
    builder = x509.CertificateBuilder(names[1], names[0], key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=9))
    if dns:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


FAULTS = [
    pytest.param(PEM, NOW, "", id="a new one has none"),
    pytest.param(PEM, NOW - timedelta(hours=23), "", id="nor where the clock is behind"),
    pytest.param(PEM, NOW + timedelta(days=3652), "", id="nor after ten years"),
    pytest.param(PEM, NOW + timedelta(days=3654), "expired on 2040-01-02 00:00 UTC", id="later it has expired"),
    pytest.param(PEM, NOW - timedelta(days=2), "is not valid before 2029-12-31 00:00 UTC", id="a clock far behind"),
    pytest.param(b"", NOW, "is not a PEM certificate", id="nothing"),
    pytest.param(KEY, NOW, "is not a PEM certificate", id="a key"),
    pytest.param(PEM[:200], NOW, "is not a PEM certificate", id="half of one"),
    pytest.param(b"\xff\x00", NOW, "is not a PEM certificate", id="no text"),
    pytest.param(signed("web", "web"), NOW, f"DNS name {SERVER_NAME}", id="of another name"),
    pytest.param(signed(SERVER_NAME, SERVER_NAME, dns=False), NOW, f"DNS name {SERVER_NAME}", id="by common name only"),
    pytest.param(signed(SERVER_NAME, "authority"), NOW, "is not self-signed", id="an authority's"),
]


@pytest.mark.parametrize(("pem", "at", "fault"), FAULTS)
def test_the_fault_of_a_certificate(pem: bytes, at: datetime, fault: str) -> None:
    found = certificate.fault_of_certificate(pem, at)
    assert fault in (found or "")
    assert (found is None) is (fault == "")


LOCKED = serialization.load_pem_private_key(KEY, None).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
)
KEY_FAULTS = [
    pytest.param(KEY, None, id="its own has none"),
    pytest.param(OTHER_KEY, "is not the key of the certificate", id="another's"),
    pytest.param(PEM, "is not a PEM private key", id="a certificate"),
    pytest.param(b"", "is not a PEM private key", id="nothing"),
    pytest.param(LOCKED, "without a password", id="a key with a password"),
]


@pytest.mark.parametrize(("pem", "fault"), KEY_FAULTS)
def test_the_fault_of_a_key(pem: bytes, fault: str | None) -> None:
    found = certificate.fault_of_key(pem, PEM)
    assert found is None if fault is None else fault in (found or "")


def agent(ca: str, *, strict: bool = False) -> ssl.SSLContext:
    """What an agent makes of the certificate that its pod was given."""
    context = ssl.create_default_context(cadata=base64.b64decode(ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT if strict else ssl.VerifyFlags(0)
    return context


@asynccontextmanager
async def serving(server: Credentials) -> AsyncIterator[int]:
    """An echo behind these credentials; yields its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server.server_context()) as listening:
        yield listening.sockets[0].getsockname()[1]


async def exchange(port: int, context: ssl.SSLContext, name: str = SERVER_NAME) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    writer.write(b"hello\n")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("strict", [False, True], ids=["before Python 3.13", "since Python 3.13"])
async def test_an_agent_reaches_the_coordinator_that_it_was_told_of(strict: bool) -> None:
    made = credentials.make(now())
    async with serving(made) as port:
        assert await exchange(port, agent(made.ca, strict=strict)) == b"hello\n"


async def test_an_agent_trusts_no_other() -> None:
    made, other = (credentials.make(now()) for _ in range(2))
    async with serving(made) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await exchange(port, agent(other.ca))
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await exchange(port, agent(made.ca), name="elsewhere")
        with pytest.raises(ssl.SSLCertVerificationError):
            await exchange(port, ssl.create_default_context())


def test_an_agents_environment_has_room_for_it() -> None:
    assert len(credentials.make(NOW).ca) < 1024
