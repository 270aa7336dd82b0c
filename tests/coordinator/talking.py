"""Agents as the coordinator hears them: connections over which a test says what it likes."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_agent.contract.messages import Hello, Join, Message, ToAgent, read_to_agent
from pytorchjob_operator import tokens
from pytorchjob_operator.coordinator.authentication import Authenticator, KeyedTokens
from pytorchjob_operator.coordinator.jobs import Jobs
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.server import Server
from pytorchjob_operator.coordinator.thread import _listen
from pytorchjob_operator.coordinator.usage import Title
from pytorchjob_operator.rounds.state import JobEvent, JobSynced
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.waiting import SECONDS

KEY = b"k" * 32
JOB = "a-job"


def pod(index: int) -> str:
    return f"tiny-worker-{index}"


def pods(count: int) -> dict[int, ExpectedPod]:
    return {index: ExpectedPod(pod(index), f"uid-{index}") for index in range(count)}


def hello(index: int = 0, **changes: Any) -> Hello:
    name = changes.get("pod", pod(index))
    given: dict[str, Any] = {
        "job": JOB,
        "pod": name,
        "token": tokens.token(KEY, changes.get("job", JOB), name),
        "index": index,
        "address": f"10.0.0.{index}",
        "nproc": 1,
        "incarnation": f"first-{index}",
        "pod_uid": f"uid-{index}",
    }
    return Hello(**given | changes)


class Talker:
    """One connection to the coordinator."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, port: int, trust: ssl.SSLContext | None = None) -> "Talker":
        name = SERVER_NAME if trust else None
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name))

    @classmethod
    async def dial_deaf(cls, port: int) -> "Talker":
        """A peer that takes in a few bytes and reads none of them after the first ones."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        return cls(*await asyncio.open_connection(sock=raw, limit=64))

    def say(self, *messages: Message) -> "Talker":
        for message in messages:
            self.writer.write(message.to_line())
        return self

    def write(self, raw: bytes) -> "Talker":
        self.writer.write(raw)
        return self

    async def hear(self) -> ToAgent | None:
        """The next message, None when the coordinator has hung up."""
        async with asyncio.timeout(SECONDS):
            try:
                line = await self._reader.readline()
            except ConnectionError:
                return None
        return read_to_agent(line) if line else None

    async def hear_kind(self, kind: str) -> Any:
        """The next message of a kind; others before it are passed over."""
        while (message := await self.hear()) is not None:
            if message.kind == kind:
                return message
        raise AssertionError(f"the coordinator hung up before it said {kind}")

    async def heard_all(self) -> list[str]:
        """The kinds of all messages until the coordinator hangs up."""
        kinds = []
        while (message := await self.hear()) is not None:
            kinds.append(message.kind)
        return kinds

    def close(self) -> None:
        self.writer.close()

    def cut(self) -> None:
        """Hang up at once: an orderly end of TLS waits for the other side, longer than the test's loop lives."""
        self.writer.transport.abort()


class House:
    """A running server, with the events of its jobs."""

    def __init__(self, port: int, server: Server, jobs: Jobs, events: list[JobEvent]) -> None:
        self.port, self.server, self.jobs, self.events = port, server, jobs, events
        self._talkers: list[Talker] = []

    async def dial(self, *, deaf: bool = False) -> Talker:
        self._talkers.append(await (Talker.dial_deaf(self.port) if deaf else Talker.dial(self.port)))
        return self._talkers[-1]

    async def member(self, index: int = 0, *, deaf: bool = False, **changes: Any) -> Talker:
        """An agent that was let in."""
        talker = (await self.dial(deaf=deaf)).say(hello(index, **changes))
        await talker.hear_kind("welcome")
        return talker

    async def waiting(self, index: int = 0, **changes: Any) -> Talker:
        """An agent that waits for a round."""
        return (await self.member(index, **changes)).say(Join(4000 + index))

    async def leave(self) -> None:
        for talker in self._talkers:
            talker.cut()
        await asyncio.sleep(0)


@asynccontextmanager
async def house(
    limits: Limits | None = None,
    members: int = 2,
    least: int | None = None,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[House]:
    """A server for one job with so many replicas."""
    loop, events, limits = asyncio.get_running_loop(), list[JobEvent](), limits or Limits()
    jobs = Jobs(1, loop.time, lambda _, new: events.extend(new), limits)
    policy = Policy(members if least is None else least, members)
    jobs.sync_job(JOB, JobSynced(policy, pods(members)), Title("tiny", "team"))
    listener = _listen("127.0.0.1", 0)
    authenticator = authenticator or KeyedTokens(KEY)
    server = Server(authenticator, jobs, loop.time, None, limits)
    serving = asyncio.create_task(server.serve(listener))
    found = House(listener.getsockname()[1], server, jobs, events)
    try:
        yield found
    finally:
        await found.leave()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        listener.close()
