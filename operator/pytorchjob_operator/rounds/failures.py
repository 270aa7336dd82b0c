"""What is stored of the failures of one rendezvous, and which members leave because of them. Pure."""

from dataclasses import replace

from pytorchjob_agent.contract.fields import cut
from pytorchjob_agent.contract.messages import Failed
from pytorchjob_operator.rounds.phases import Origin, Rendezvous
from pytorchjob_operator.rounds.values import Failure

WHOLE_FAILURES = 64
"""Failures of one rendezvous that are stored with their tracebacks."""
MOST_FAILURES = 10_000
"""Failures of one rendezvous that are stored at all."""
SHORT_MESSAGE = 256
"""Characters of the message of a later failure."""


def stored_failure(message: Failed, index: int, now: float, earlier: int) -> Failure | None:
    """Return what to store of a member's failure: less of it after many others, nothing after very many."""
    if earlier >= MOST_FAILURES:
        return None
    whole = earlier < WHOLE_FAILURES
    return Failure(
        index=index,
        rank=message.rank,
        exit_code=message.exit_code,
        message=message.message if whole else cut(message.message, SHORT_MESSAGE),
        traceback=message.traceback if whole else "",
        at=now - min(max(message.age, 0.0), 60.0),
        also=message.also if whole else (),
        hang=message.hang,
        waits=message.waits,
        stopped=message.stopped,
        idle=max(message.idle, 0.0),
        places=message.places if whole else {},
        positions=message.positions if whole else tuple(replace(each, recent=()) for each in message.positions),
        errors=message.errors,
        raised_in=message.raised_in,
        early=message.early,
    )


def leaves_because(phase: Rendezvous, index: int | None) -> bool:
    """True if a member of the last round leaves because of its failures, and so is not a cause of them.

    A torchrun whose workers are done starts again when another round begins. torchrun reports no cause of a failure.
    """
    unexplained = any(failure.unexplained for failure in phase.failures)
    return unexplained and phase.last_round is not None and index in phase.last_round.done


def with_loss(phase: Rendezvous, index: int) -> Rendezvous:
    """Return the phase after a member of the last round is lost: it may be the cause of the failures."""
    if leaves_because(phase, index):
        return phase
    return replace(phase, origin=max(phase.origin, Origin.MAYBE_LOSS))
