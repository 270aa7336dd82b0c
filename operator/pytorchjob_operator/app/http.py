"""Health, readiness and metrics on one port.

Alive: the event loop runs and no essential task has ended. Ready: the caches are complete and their watches have
received data from the API server lately. A standby is ready too, so that a rolling update can proceed.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

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


async def serve(app: web.Application, port: int, host: str | None = None) -> web.AppRunner:
    """Start the server; the caller cleans up the returned runner."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
