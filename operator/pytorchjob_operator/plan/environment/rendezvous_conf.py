"""Tier 0: what torch's own c10d rendezvous is told, so that torchrun without any agent of ours recovers, and sooner.

Only what the user has not said, and never beside pods that v1 made. Why these values: docs/decisions/0003-tiers.md.
"""

from typing import Any

from pytorchjob_agent.contract.environment import DEFAULT_BACKEND, PET_RDZV_CONF, ContractError, rdzv_conf
from pytorchjob_operator.model import ElasticPolicy, main_container
from pytorchjob_operator.observed import Options

Conf = tuple[tuple[str, str], ...]

MOST_NODES = 16
"""Every beat of every node rewrites one value that all share: above this, more beats make more nodes miss theirs."""
_TIMINGS: Conf = (("keep_alive_interval", "1"), ("keep_alive_max_attempt", "5"), ("last_call_timeout", "10"))
"""A node is gone after 5 s without a beat (torch: 15), and those that are left wait 10 s for others (torch: 30)."""


def separates_stores(elastic: ElasticPolicy, options: Options) -> bool:
    """Whether every round needs a store of its own: in a shared one, workers meet the addresses of dead ones."""
    return _is_c10d(elastic) and not options.legacy


def timings(elastic: ElasticPolicy, options: Options) -> Conf:
    """How soon a node counts as lost, and how long a group below its maximum waits. `elastic` has its defaults."""
    small = (elastic.max_replicas or 1) <= MOST_NODES
    meets = _is_c10d(elastic) and not elastic.standalone
    return _TIMINGS if meets and small and not options.legacy else ()


def policy_conf(elastic: ElasticPolicy) -> Conf:
    """The settings of the policy itself."""
    return tuple((one.key, one.value) for one in elastic.rdzv_conf or ())


def given_conf(elastic: ElasticPolicy, template: dict[str, Any]) -> Conf | None:
    """The user's own settings: the policy's, or those in the pod's env; None where these cannot be read here."""
    env = (main_container(template) or {}).get("env") or ()
    own = [one for one in env if one.get("name") == PET_RDZV_CONF]
    if elastic.rdzv_conf or not own:
        return policy_conf(elastic)
    text = own[-1].get("value")
    if "valueFrom" in own[-1] or "$" in (text or ""):
        return None
    try:
        return rdzv_conf(text or "")
    except ContractError:
        return None


def _is_c10d(elastic: ElasticPolicy) -> bool:
    return (elastic.rdzv_backend or DEFAULT_BACKEND) == DEFAULT_BACKEND
