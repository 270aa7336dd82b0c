"""A working operator on a fake API server, without the watch of jobs: a test passes the events that kopf would pass."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.operator import Operator
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.settings import Settings
from tests.fakes.apiserver import FakeApi


@asynccontextmanager
async def working(api: FakeApi, settings: Settings | None = None) -> AsyncIterator[Operator]:
    """Run it; it leads unless the settings let it compete for a Lease. At the end no part of it has ended by itself."""
    settings = settings or Settings(leader_elect=False)
    operator = Operator(settings, ApiEndpoint(api.url), Metrics())
    async with operator.client, operator.writer, operator.lease_client:
        routines = [operator.work(), operator.recorder.run(), *(reflector.run() for reflector in operator.reflectors)]
        if settings.leader_elect:
            routines.append(operator.elector.run())
        tasks = [asyncio.create_task(routine) for routine in routines]
        try:
            yield operator
            ended = [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert ended == [], results
