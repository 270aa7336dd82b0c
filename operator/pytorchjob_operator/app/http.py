"""Health, readiness and metrics on one port.

Alive: the event loop runs and no essential task has ended. Ready: the caches are complete and their watches have
received data from the API server lately. A standby is ready too, so that a rolling update can proceed.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

MOST_CONNECTIONS = 128
"""Probes and scrapers have a few connections; an intruder that reaches the port could have thousands."""
_TRIM_SECONDS = 0.01
"""Connections beyond the limit are closed after this time."""

Check = Callable[[], str | None]
"""Returns what is wrong; None if nothing is."""


def build_app(alive: Check, ready: Check, registry: CollectorRegistry) -> web.Application:
    """Build the server's routes: /healthz, /readyz and /metrics."""
    app = web.Application(client_max_size=1024)
    app.router.add_get("/healthz", _answer(alive))
    app.router.add_get("/readyz", _answer(ready))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/metrics", metrics)
    return app


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=(problem or "ok") + "\n", status=503 if problem else 200)

    return answer


class BoundedSite(web.BaseSite):
    """A port with a bounded number of connections: beyond it the oldest one is closed, so probes are always answered.

    aiohttp alone lets a peer that sends nothing keep its connection for ever.
    """

    def __init__(self, runner: web.AppRunner, host: str | None, port: int, most: int = MOST_CONNECTIONS) -> None:
        """Prepare; `most` is the number of connections."""
        super().__init__(runner)
        self._host, self._port, self._most = host, port, most
        self._trimming: asyncio.TimerHandle | None = None
        self._accepted = False
        """True if a connection was accepted since the last trim: it may not have begun by the next one."""

    @property
    def name(self) -> str:
        """The address, as aiohttp shows it."""
        return f"http://{self._host or '0.0.0.0'}:{self._port}"  # noqa: S104  (text only)

    async def start(self) -> None:
        """Open the port. Raises OSError."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, self._host, self._port, backlog=self._backlog)

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        self._accepted = True
        if self._trimming is None:
            self._trim_soon(server)
        return server()

    def _trim_soon(self, server: web.Server) -> None:
        self._trimming = asyncio.get_running_loop().call_later(_TRIM_SECONDS, self._trim, server)

    def _trim(self, server: web.Server) -> None:
        """Close the oldest connections beyond the limit."""
        self._trimming = None
        if self._accepted:
            self._accepted = False
            self._trim_soon(server)
        connected = [connection for connection in server.connections if connection.transport is not None]
        for connection in connected[: -self._most]:
            connection.force_close()


async def serve(app: web.Application, port: int, host: str | None = None) -> web.AppRunner:
    """Start the server; the caller cleans up the returned runner."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await BoundedSite(runner, host, port).start()
    return runner
