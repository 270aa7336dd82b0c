"""Agents of one job that were let in, and use all that a message or a connection may be.

python -m tests.attacks.insiders PORT CERTIFICATE JOB CONNECTIONS HOW

It prints a line once it has begun, and ends with its input.
"""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Awaitable, Callable

from pytorchjob_agent.contract.messages import Failed, Heartbeat, Join, RoundId
from tests.attacks.agents import dial
from tests.coordinator.talking import Talker, hello

_RATE = 45
"""Messages per second of one connection, just below its limit."""
_BEAT = Heartbeat(step=1, heard=tuple(range(4000))).to_line()
"""A legal heartbeat of 20 KB."""


async def _drain(talker: Talker) -> None:
    while await talker.hear() is not None:
        pass


async def _repeat(talker: Talker, line: bytes) -> None:
    hearing = asyncio.create_task(_drain(talker))
    while not talker.writer.is_closing() and not hearing.done():
        talker.write(line)
        with contextlib.suppress(ConnectionError):
            await talker.writer.drain()
        await asyncio.sleep(1 / _RATE)
    hearing.cancel()


async def beats(talker: Talker) -> None:
    """Send large heartbeats as fast as allowed."""
    await _repeat(talker, _BEAT)


async def failures(talker: Talker) -> None:
    """Report large failures of ever other ranks as fast as allowed."""
    for rank in range(10**6):
        if talker.writer.is_closing():
            return
        talker.say(Failed(RoundId(1, 1), rank, 0, 1, "世" * 4096, "世" * 5000))
        await asyncio.sleep(1 / _RATE)


async def tails(talker: Talker) -> None:
    """Begin a line of the largest size, and never end it."""
    talker.write(b"x" * 65_000)
    await _drain(talker)


async def rounds(talker: Talker) -> None:
    """Report a round that leaves no room for another one."""
    talker.say(Join(4000, RoundId(2**53, 2**31 - 1)))
    await _drain(talker)


async def churn(talker: Talker) -> None:
    """Leave at once: the next connection costs a handshake."""
    talker.cut()


async def attack(
    port: int, trust: ssl.SSLContext, job: str, index: int, how: Callable[[Talker], Awaitable[None]]
) -> None:
    while True:
        talker = await dial(port, hello(index, job=job), trust)
        with contextlib.suppress(ConnectionError):
            await how(talker)
        talker.cut()


async def main(port: int, certificate: str, job: str, connections: int, how: str) -> None:
    trust = ssl.create_default_context(cafile=certificate)
    kinds = {kind.__name__: kind for kind in (beats, failures, tails, rounds, churn)}
    attacks = [asyncio.create_task(attack(port, trust, job, index, kinds[how])) for index in range(connections)]
    await asyncio.sleep(1.0)
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in attacks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
