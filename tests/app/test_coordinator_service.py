"""The coordinator's service: what it does with the credentials that it reads again."""

import asyncio
import base64
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_operator.app.coordinator_service import ClusterAccess, CoordinatorService, ServiceHooks
from pytorchjob_operator.app.key_ring import DISCOVERY_PATH, KEYS_PATH
from pytorchjob_operator.app.operator import now
from pytorchjob_operator.kube import credentials
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.observed import CoordinatorAccess, Pod
from pytorchjob_operator.settings import Settings
from tests.fakes.apiserver import FakeApi
from tests.fakes.tokens import ISSUER, Signer
from tests.waiting import until_async

PLACE = ("system", "coordinator")
SECRETS = "api/v1/secrets"


def with_a_key_too_short_for_tls() -> Mapping[str, str]:
    """The fields of a certificate that is correct in itself."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER_NAME)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now() - timedelta(1)).not_valid_after(now() + timedelta(1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(pem)
    return {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(private).decode()}


async def started(
    api: FakeApi, client: ApiClient, accesses: list[CoordinatorAccess], *, tls: bool = True
) -> CoordinatorService:
    """A service that serves, with the credentials that the cluster has."""
    documents = {KEYS_PATH: {"keys": [Signer("key-1", "ES256").jwk()]}, DISCOVERY_PATH: {"issuer": ISSUER}}
    api.failing = lambda asked: web.json_response(documents[asked.path]) if asked.path in documents else None
    settings = Settings(
        coordinator=True,
        coordinator_address="operator:1",
        coordinator_port=0,
        coordinator_secret=PLACE[1],
        coordinator_tls=tls,
    )
    pods = Store[Pod](asyncio.get_running_loop().time)
    cluster = ClusterAccess(client, client, PLACE[0], pods, lambda: 0.0, lambda: False)
    service = CoordinatorService(settings, cluster, ServiceHooks(lambda uid, events: None, accesses.append))
    await service.prepare()
    service.start(1)
    return service


@pytest.mark.parametrize(
    ("tls", "encrypted"),
    [
        pytest.param(True, True, id="members of a round encrypt what they copy to each other"),
        pytest.param(False, False, id="where TLS is off, they do not"),
    ],
)
async def test_the_certificate_of_a_round(api: FakeApi, client: ApiClient, tls: bool, encrypted: bool) -> None:
    api.put(SECRETS, credentials.to_secret(credentials.make(now()), *PLACE))
    service = await started(api, client, [], tls=tls)
    try:
        assert service._coordinator is not None
        made = [text for _ in range(2) for text in service._coordinator._hooks.make_certificates(2)]
    finally:
        await service.stop()
    assert ["PRIVATE KEY" in text and "BEGIN CERTIFICATE" in text for text in made] == [encrypted] * 4
    assert len(set(made)) == (4 if encrypted else 1), "each member of each round has its own"


async def test_a_certificate_that_tls_refuses_is_reported_each_time_and_reaches_no_pod(
    api: FakeApi, client: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    secret = credentials.to_secret(credentials.make(now()), *PLACE)
    api.put(SECRETS, secret)
    accesses: list[CoordinatorAccess] = []
    service = await started(api, client, accesses)
    api.put(SECRETS, {**secret, "data": {**secret["data"], **with_a_key_too_short_for_tls()}})
    running = asyncio.create_task(service.run())
    caplog.set_level(logging.WARNING)
    try:
        for times in (1, 2):
            await until_async(lambda times=times: caplog.text.count("cannot be used for TLS") == times, 10)
            service._due.set()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await service.stop()
    assert len(accesses) == 1
