"""Another local run on this machine, in a process of its own: a coordinator, and an agent that it answers.

python -m tests.attacks.local_agent

It prints the seconds of each message with its answer, and ends with its output.
"""

import asyncio
import contextlib

from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.thread import Coordinator
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.rounds.values import Policy
from tests.attacks.agents import ask, form_round
from tests.coordinator.talking import JOB, KEY, pods


async def main() -> None:
    coordinator = Coordinator(KeyedTokens(KEY), 1)
    port = coordinator.start("127.0.0.1", 0)
    coordinator.apply(JOB, Sync(Policy(1, 1), pods(1)))
    (talker,) = await form_round(port, JOB, 1)
    with contextlib.suppress(BrokenPipeError):
        while True:
            print(await ask(talker), flush=True)
            await asyncio.sleep(0.021)
    talker.cut()
    coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
