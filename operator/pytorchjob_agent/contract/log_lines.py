"""The lines of a pod's log that are for programs too: the agent writes them, and the command line reads them. Pure."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .messages import Assigned

AGENT = "pytorchjob-agent: "
"""Before each line of the agent."""
_ROUND = re.compile(rf"{AGENT}round \S+ node \d+ of \d+, ranks (\d{{1,9}}) to (\d{{1,9}}) of".encode())


def round_line(assigned: "Assigned", count: int) -> str:
    """Return a round as people read it in the pod's log; `count` workers are here."""
    first, restarts = assigned.first_rank, assigned.restarts
    return (
        f"round {assigned.round}: node {assigned.rank} of {assigned.size}, ranks {first} to {first + count - 1} of"
        f" {assigned.world_size}, master {assigned.master_address}:{assigned.master_port},"
        f" {restarts} {'restart' if restarts == 1 else 'restarts'} so far"
    )


def ranks_of(line: bytes) -> range | None:
    """Return the ranks of a pod if this is the agent's line about a round."""
    found = _ROUND.match(line)
    return range(int(found[1]), int(found[2]) + 1) if found else None
