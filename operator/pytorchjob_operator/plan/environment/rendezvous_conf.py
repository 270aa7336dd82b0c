"""PET_RDZV_CONF: settings of torch's c10d rendezvous, with which torchrun without our agent recovers sooner.

The user's settings win, and jobs with pods of v1 get no additions. Why these values: docs/decisions/0003-tiers.md.
"""

from typing import Any

from pytorchjob_agent.contract.environment import DEFAULT_BACKEND, PET_RDZV_CONF, rdzv_conf
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_operator.model import ElasticPolicy, main_container
from pytorchjob_operator.observed import Options

Conf = tuple[tuple[str, str], ...]

MOST_NODES = 16
"""Most nodes for faster heartbeats: each rewrites one value that all nodes share, so more nodes would miss theirs."""
_TIMINGS: Conf = (("keep_alive_interval", "1"), ("keep_alive_max_attempt", "5"), ("last_call_timeout", "10"))
"""A node is lost after 5 s without a heartbeat (torch: 15), and the others wait 10 s for new nodes (torch: 30)."""


def separates_stores(elastic: ElasticPolicy, options: Options) -> bool:
    """Whether every round needs its own store: in a shared store, workers find addresses of dead workers."""
    return _is_c10d(elastic) and not options.legacy


def timings(elastic: ElasticPolicy, options: Options) -> Conf:
    """Return how soon a node counts as lost, and how long a group below its maximum waits. `elastic` has defaults."""
    small = (elastic.max_replicas or 1) <= MOST_NODES
    c10d = _is_c10d(elastic) and not elastic.standalone
    return _TIMINGS if c10d and small and not options.legacy else ()


def policy_conf(elastic: ElasticPolicy) -> Conf:
    """Return the settings of the policy itself."""
    return tuple((setting.key, setting.value) for setting in elastic.rdzv_conf or ())


def given_conf(elastic: ElasticPolicy, template: dict[str, Any]) -> Conf | None:
    """Return the user's settings: the policy's, or those in the pod's environment; None if these are unreadable."""
    env = (main_container(template) or {}).get("env") or ()
    own = [variable for variable in env if variable.get("name") == PET_RDZV_CONF]
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
