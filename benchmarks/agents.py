"""Simulated agents: they say what real ones say, and start no workers."""

import asyncio
import json
import random
import ssl
from collections.abc import Callable
from typing import Any

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, Failed, Heartbeat, Hello, Join, Message, RoundId
from pytorchjob_operator import tokens

JOB = "simulated"
KEY = b"k" * 32
_PAUSE = 0.1


def pod(index: int) -> str:
    return f"simulated-worker-{index}"


class Agent(asyncio.Protocol):
    """One agent; `assigned` is called whenever it is given its rank."""

    def __init__(self, index: int, assigned: Callable[[], None]) -> None:
        self._index, self._assigned = index, assigned
        self._transport: asyncio.Transport | None = None
        self.changed = asyncio.Event()
        """Set once it has a rank, or no connection."""
        self._pending = b""
        self._step = 0
        self._joined = True
        self.round: RoundId | None = None
        self.heard = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._say(self._hello(), Join(4000))
        # At a moment of its own in each second.
        asyncio.get_running_loop().call_later(random.uniform(0, HEARTBEAT_SECONDS), self._beat, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.changed.set()

    def fail(self) -> None:
        """Say that a worker here has failed, and wait for the next round."""
        assert self.round is not None
        self._joined = True
        self._say(Failed(self.round, rank=self._index, local_rank=0, exit_code=1, message="simulated"), Join(4000))

    def close(self) -> None:
        """Leave without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _beat(self, transport: asyncio.Transport) -> None:
        if self._transport is transport:
            self._step += 1
            self._say(Heartbeat(step=self._step, total=1_000_000, metrics={"loss": 0.1}, heard=(self._index + 1,)))
            asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._beat, transport)

    def _hear(self, said: dict[str, Any]) -> None:
        self.heard += 1
        if said["kind"] == "assigned":
            self.round, self._joined = RoundId(*said["round"]), False
            self.changed.set()
            self._assigned()
        elif said["kind"] == "restart" and not self._joined:
            self._joined = True
            self._say(Join(4000))
        elif said["kind"] == "refused":
            raise RuntimeError(said["message"])

    def _say(self, *messages: Message) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(message.to_line() for message in messages))

    def _hello(self) -> Hello:
        return Hello(
            job=JOB,
            pod=pod(self._index),
            token=tokens.token(KEY, JOB, pod(self._index)),
            index=self._index,
            address="10.0.0.1",
            nproc=8,
            incarnation=f"first-{self._index}",
        )


class Crowd:
    """Many agents of one job."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._everybody = asyncio.Event()
        self.agents = [Agent(index, self._assigned) for index in range(size)]

    async def dial(self, port: int, trust: ssl.SSLContext | None) -> None:
        """Connect all of them; return once each has its rank."""
        dialing = [self._dial(agent, port, trust) for agent in self.agents]
        await asyncio.gather(*dialing, self._everybody.wait())

    async def _dial(self, agent: Agent, port: int, trust: ssl.SSLContext | None) -> None:
        """One agent, again and again, as a real one does."""
        loop, name = asyncio.get_running_loop(), SERVER_NAME if trust else None
        while agent.round is None:
            agent.changed.clear()
            try:
                await loop.create_connection(lambda: agent, "127.0.0.1", port, ssl=trust, server_hostname=name)
            except OSError:
                await asyncio.sleep(_PAUSE)
            else:
                await agent.changed.wait()

    async def fail(self) -> None:
        """Have a worker fail; return once each has its rank in the next round."""
        self._left = len(self.agents)
        self._everybody.clear()
        self.agents[-1].fail()
        await self._everybody.wait()

    async def leave(self) -> None:
        for agent in self.agents:
            agent.close()
        await asyncio.sleep(0.1)

    def _assigned(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._everybody.set()
