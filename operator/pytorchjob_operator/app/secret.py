"""The Secret with the coordinator's credentials: the first replica of the operator creates it, the leader renews it."""

import logging
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NoReturn

from pytorchjob_operator.app.waiting import until_available
from pytorchjob_operator.errors import Conflict, NotFound, OperatorError, RequestRefused
from pytorchjob_operator.kube import credentials
from pytorchjob_operator.kube.client import ApiClient, Object
from pytorchjob_operator.kube.credentials import Credentials
from pytorchjob_operator.kube.resource import SECRETS

logger = logging.getLogger(__name__)


async def load_credentials(client: ApiClient, namespace: str, name: str) -> Credentials:
    """Read the Secret, and create it if it does not exist; wait while the API server is unavailable.

    Raises OperatorError if the Secret is invalid or a permission is missing.
    """
    what = f"the Secret {namespace}/{name} of the coordinator"
    secret = await until_available(lambda: _read_or_create(client, namespace, name), what)
    return credentials.from_secret(secret, datetime.now(UTC))


async def renew_credentials(
    client: ApiClient, namespace: str, name: str, used: Credentials, writer: ApiClient | None
) -> Credentials:
    """Read the Secret again, and return what it has. With a writer, rotate the certificates when they are due.

    `writer` is the leader's client; None: this process does not lead. `used`: what running pods trust. If the Secret
    is gone, the leader writes them back: the next leader would make others, which no running pod trusts.
    Raises ApiError, and OperatorError if the Secret is invalid or a permission is missing.
    """
    now = datetime.now(UTC)
    try:
        secret = await client.get(SECRETS, namespace, name)
    except NotFound:
        if writer is None:
            return used
        secret = await _write_back(writer, namespace, name, used)
    current = credentials.from_secret(secret, now)
    due = credentials.rotate(current, now)
    if due == current or writer is None:
        return current
    body = {**secret, "data": credentials.to_secret(due, namespace, name)["data"]}
    try:
        await writer.update(SECRETS, namespace, body)
    except RequestRefused as error:
        _refused(error, "update", f"secrets named {name} in namespace {namespace}")
    logger.info("the coordinator's certificate is valid until %s; the next one is known to new pods", due.expiry)
    return due


async def _write_back(writer: ApiClient, namespace: str, name: str, used: Credentials) -> Object:
    try:
        stored = await writer.create(SECRETS, namespace, credentials.to_secret(used, namespace, name))
    except RequestRefused as error:
        _refused(error, "create", f"secrets in namespace {namespace}")
    logger.warning("the Secret %s/%s of the coordinator was gone: it is written again", namespace, name)
    return stored


async def _read_or_create(client: ApiClient, namespace: str, name: str) -> Object:
    try:
        return await client.get(SECRETS, namespace, name)
    except NotFound:
        pass
    except RequestRefused as error:
        _refused(error, "get", f"secrets named {name} in namespace {namespace}")
    try:
        secret = credentials.to_secret(credentials.make(datetime.now(UTC)), namespace, name)
        stored = await client.create(SECRETS, namespace, secret)
    except Conflict:
        # Another replica was first: all replicas must use the same credentials.
        return await client.get(SECRETS, namespace, name)
    except RequestRefused as error:
        _refused(error, "create", f"secrets in namespace {namespace}")
    logger.info("created the Secret %s/%s for the coordinator", namespace, name)
    return stored


def _refused(error: RequestRefused, verb: str, what: str) -> NoReturn:
    if error.status != HTTPStatus.FORBIDDEN:
        raise error
    raise OperatorError(
        f"the coordinator needs permission to {verb} {what}: {error.message}; grant it by a Role, as the chart does, or"
        " disable the coordinator (chart: coordinator.enabled=false)"
    ) from error
