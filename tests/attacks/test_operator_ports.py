"""An intruder reaches the operator's port of probes and metrics, and wants it to be restarted or to fill its memory."""

import asyncio
import contextlib
import socket

from aiohttp import ClientError, ClientSession

from pytorchjob_operator.app import http
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.coordinator.capacity import raise_open_files
from tests.attacks.bystander import timed_async, watching
from tests.ports import free_port
from tests.waiting import until_async


async def _ask_for_health(port: int) -> None:
    """The kubelet's probe, over a connection of its own; one that is displaced asks again."""
    while True:
        with contextlib.suppress(ClientError):
            async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
                return


async def test_a_thousand_silent_sockets_do_not_keep_the_kubelet_from_its_probe() -> None:
    raise_open_files()  # both sides are in this process
    port, silent = free_port(), list[socket.socket]()
    runner = await http.serve(http.build_app(lambda: None, lambda: None, Metrics().registry), port, "127.0.0.1")
    try:
        async with watching("the kubelet's probe", lambda: timed_async(lambda: _ask_for_health(port))) as kubelet:
            for number in range(1000):
                silent.append(socket.socket())
                silent[-1].setblocking(False)
                silent[-1].connect_ex(("127.0.0.1", port))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # all are accepted
            server = runner.server
            assert server is not None
            await until_async(lambda: 0 < len(server.connections) <= http.MOST_CONNECTIONS)
            await _ask_for_health(port)
            await kubelet.settled()
    finally:
        for sock in silent:
            sock.close()
        await runner.cleanup()
