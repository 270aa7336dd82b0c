"""Which extensions an agent has: a line for each. Without a line, and without its folder, the agent does without it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytorchjob_agent.caches import round_caches
from pytorchjob_agent.rendezvous.extension import Extension, Extensions
from pytorchjob_agent.saves import round_saves


@dataclass(frozen=True, slots=True)
class Pod:
    """What an extension may need of the pod that it is in."""

    environ: Mapping[str, str]
    job: str
    """The job's uid."""
    address: str
    """Where peers reach this pod."""
    nproc: int
    """Workers of this pod."""


_ALL: tuple[Callable[[Pod], Extension], ...] = (
    lambda pod: round_caches.create(pod.environ, pod.address),  # it fetches while a save is restored
    lambda pod: round_saves.create(pod.environ, pod.job, pod.address, pod.nproc),
)


def create(pod: Pod) -> Extensions:
    """Return the extensions of this agent. Raises ContractError for wrong settings."""
    return Extensions(*(make(pod) for make in _ALL))
