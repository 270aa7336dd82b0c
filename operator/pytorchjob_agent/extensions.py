"""Which extensions an agent has: a line for each. Without its line and its folder, the agent does without it."""

from collections.abc import MutableMapping

from pytorchjob_agent.caches.round_caches import CACHES
from pytorchjob_agent.hangs.round_hangs import HANGS
from pytorchjob_agent.observers.round_observers import OBSERVERS
from pytorchjob_agent.rendezvous.extension import Extensions, OwnPod, Registered
from pytorchjob_agent.saves.round_saves import SAVES
from pytorchjob_agent.shrinks.round_shrinks import SHRINKS
from pytorchjob_agent.stragglers.own_times import STRAGGLERS

_ALL: tuple[Registered, ...] = (
    CACHES,  # it fetches while a save is restored
    SAVES,
    OBSERVERS,
    STRAGGLERS,
    HANGS,
    SHRINKS,
)


def equip(environ: MutableMapping[str, str]) -> None:
    """Change the environment as the extensions need it. Raises ContractError."""
    for each in _ALL:
        each.equip(environ)


def create(pod: OwnPod) -> Extensions:
    """Return the extensions of this agent. Raises ContractError for wrong settings."""
    return Extensions(*(each.create(pod) for each in _ALL))
