"""The yardstick of creation: a client that does nothing but post the same pods over the same number of connections."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import aiohttp

from benchmarks.cluster import CONNECTIONS, USER_AGENT, Cluster, Object
from pytorchjob_operator.kube import config
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import CreatePod


async def post_pods(cluster: Cluster, owner: Object) -> None:
    """Post all pods of a stored job, each body encoded before the start, each reply read and thrown away."""
    connection = config.load({"KUBECONFIG": str(cluster.plane.kubeconfig)})
    bodies = iter([json.dumps(body, separators=(",", ":")).encode() for body in _pods(owner)])
    url = f"{connection.server}/api/v1/namespaces/{owner['metadata']['namespace']}/pods"
    headers = {
        "User-Agent": USER_AGENT,
        "Content-Type": "application/json",
        "Authorization": f"Bearer {await connection.token()}",
    }
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=connection.ssl_context())
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        await asyncio.gather(*(_post(session, url, bodies) for _ in range(CONNECTIONS)))


async def _post(session: aiohttp.ClientSession, url: str, bodies: Iterator[bytes]) -> None:
    for body in bodies:
        async with session.post(url, data=body) as reply:
            await reply.read()
            assert reply.status == 201, await reply.text()


def _pods(owner: Object) -> list[Object]:
    spec = {key: value for key, value in owner["spec"].items() if key != "runPolicy"}
    plan = make_plan(Observed(PyTorchJob.model_validate({**owner, "spec": spec}), datetime.now(UTC)))
    return [dict(write.body) for write in plan.writes if isinstance(write, CreatePod)]
