"""Chooses the failure that caused the others: by the types of the errors, exit codes and times, never by words. Pure.

The agent uses it for the workers of a pod, the coordinator for the members of a round, and a local run for its
replicas. A lost peer raises errors of certain types. Such a failure is the cause only if all failures are of these
types: then it is the earliest one. A rank that has ended with success is the cause of those that lost it or wait for
it.
"""

from collections.abc import Callable, Sequence
from signal import SIGABRT, SIGTERM
from typing import NamedTuple, TypeVar

from .termination import ExitCode, exit_code_of

CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
"""torchrun raises it after its workers have failed; their own errors come first."""
_PEER_GONE = frozenset(
    {
        *(f"torch.distributed.Dist{kind}Error" for kind in ("", "Backend", "Network", "Store")),
        *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError"),
        *("pytorchjob_shrink.ShrinkError", "pytorchjob_agent.workers.startup.pytorchjob_shrink.ShrinkError"),
        *("BrokenPipeError", CHILD_FAILED, "torch.distributed.elastic.multiprocessing.api.SignalException"),
    }
)
_PLAIN = "RuntimeError"
"""gloo has no type of its own. Its errors come from these modules; a script's own ones do not."""
_COLLECTIVES = (
    *("torch.distributed.", "torch.nn.parallel.", "torch.autograd."),
    *("pytorchjob_backends.", "pytorchjob_collectives.", "pytorchjob_shrink.", "pytorchjob_shrink_torch."),
)
"""The last ones are the agent's own hooks, which call the collective and so are the innermost frames."""
_FILES = "torch.distributed.checkpoint."
_CODES = frozenset({exit_code_of(-SIGABRT), exit_code_of(-SIGTERM), ExitCode.RENDEZVOUS})
"""Of workers that torch aborts for a lost peer, or that the agent stops, and of agents that lack a peer's store."""

Kind = TypeVar("Kind")


class Evidence(NamedTuple):
    """What is known of a failure."""

    at: float
    rank: int
    exit_code: int = 0
    """As a shell reports it: 128 and the signal's number."""
    errors: tuple[str, ...] = ()
    """Types of the uncaught error and of those that it followed from, the uncaught one first; empty: not known."""
    raised_in: str = ""
    """The module that raised the last of them."""
    hang: bool = False
    waits: bool = False
    """Of a hang: True if the rank waits for another rank."""
    early: bool = False
    """True if the rank did not fail: it ended with success before others failed."""


def choose(failures: Sequence[Kind], evidence: Callable[[Kind], Evidence]) -> Kind:
    """Return the earliest failure that does not only say that a peer is gone; without one, the earliest.

    Without one, a rank that ended with success comes first: the others still needed it.
    """

    def order(failure: Kind) -> tuple[int, float, int]:
        known = evidence(failure)
        return doubt(known), known.at, known.rank

    early = [failure for failure in failures if evidence(failure).early]
    failed = min((failure for failure in failures if not evidence(failure).early), key=order, default=None)
    if failed is None or (early and _needs_others(evidence(failed))):
        return min(early, key=order)
    return failed


def _needs_others(known: Evidence) -> bool:
    """Return whether the rank lost another one, or waits for it; False if it was stopped, or if torchrun hides why."""
    stopped = known.exit_code == exit_code_of(-SIGTERM) or known.errors[-1:] == (CHILD_FAILED,)
    return known.waits or (doubt(known) > 0 and not stopped)


def doubt(known: Evidence) -> int:
    """Return 0 for a cause, 1 for what another failure may have caused, 2 for a rank that waits for another one."""
    if known.hang:
        return 2 if known.waits else 0
    if known.early:
        return 1
    return int(is_peer_gone(known.errors, known.raised_in) or (not known.errors and known.exit_code in _CODES))


def is_peer_gone(errors: Sequence[str], raised_in: str) -> bool:
    """Return whether errors of these types say no more than that a peer is gone."""
    if not errors:
        return False
    last, module = errors[-1], f"{raised_in}."
    collective = module.startswith(_COLLECTIVES) and not module.startswith(_FILES)
    return last in _PEER_GONE or (last == _PLAIN and collective)
