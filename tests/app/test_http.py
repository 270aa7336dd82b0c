"""What probes and scrapers get."""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pytorchjob_operator.app.http import build_app
from pytorchjob_operator.app.metrics import Metrics


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        pytest.param("/healthz", 200, "ok\n", id="alive"),
        pytest.param("/readyz", 503, "no data for 100 s\n", id="not ready, and why"),
        pytest.param("/", 404, "404: Not Found", id="nothing else is served"),
    ],
)
async def test_probes(path: str, status: int, text: str) -> None:
    app = build_app(lambda: None, lambda: "no data for 100 s", Metrics().registry)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(path)
        assert (answer.status, await answer.text()) == (status, text)


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
    app = build_app(lambda: None, lambda: None, Metrics().registry)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/metrics")
        assert answer.content_type == "text/plain"
        assert "pytorchjob_operator_build_info{version=" in await answer.text()
