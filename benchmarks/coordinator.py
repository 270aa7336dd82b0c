"""A coordinator and nothing else, for one job of so many agents: prints its port, serves until its input ends.

python -m benchmarks.coordinator AGENTS [FOLDER with tls.crt and tls.key]
"""

import ssl
import sys

from benchmarks.agents import JOB, KEY, pod
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.thread import Coordinator
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.rounds.values import ExpectedPod, Policy


def main(agents: int, folder: str) -> None:
    context = None
    if folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    coordinator = Coordinator(KeyedTokens(KEY), 1, context)
    pods = {index: ExpectedPod(pod(index)) for index in range(agents)}
    coordinator.apply(JOB, Sync(Policy(agents, agents), pods))
    print(coordinator.start("127.0.0.1", 0), flush=True)
    sys.stdin.read()
    coordinator.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
