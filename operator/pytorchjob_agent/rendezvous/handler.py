"""Our rendezvous as torch knows it: a RendezvousHandler, which gives torch the round that our loop has waited for."""

import os
import uuid
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from pytorchjob_agent.contract.coordinator_endpoint import BACKEND, CoordinatorEndpoint
from pytorchjob_agent.contract.environment import DEFAULT_FENCE, FENCE
from pytorchjob_agent.contract.messages import Hello
from pytorchjob_agent.contract.reading import seconds
from pytorchjob_agent.rendezvous.coordinator_client import Client
from pytorchjob_agent.rendezvous.membership import Membership

JOIN_TIMEOUT = 600.0


class CoordinatorRendezvous(RendezvousHandler):
    """Gives torch the round that the membership is in: our loop has waited for it before."""

    def __init__(self, membership: Membership, run_id: str) -> None:
        """Take over a membership that has not begun."""
        self.membership = membership
        self._run_id = run_id

    def get_backend(self) -> str:
        """Return the name in torch's registry."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Let the workers know that rank 0's agent keeps the store: rank 0 connects like the others."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the present round."""
        assigned = self.membership.assigned
        assert assigned is not None, "the membership is in no round yet"
        info = RendezvousStoreInfo(assigned.master_address, assigned.master_port)
        return RendezvousInfo(self.membership.store, assigned.rank, assigned.size, info)

    def is_closed(self) -> bool:
        """Whether the coordinator has ended the job."""
        return self.membership.client.inbox.stop is not None

    def set_closed(self) -> None:
        """Do nothing: only the coordinator ends a job."""

    def num_nodes_waiting(self) -> int:
        """Return 0: our loop hears of them from the coordinator."""
        return 0

    def get_run_id(self) -> str:
        """Return the run's id."""
        return self._run_id

    def shutdown(self) -> bool:
        """Leave."""
        self.membership.close()
        return True


def member(
    env: CoordinatorEndpoint, address: str, nproc: int, timeout: float = JOIN_TIMEOUT, **known: Any
) -> Membership:
    """Make the membership of this process; `known` are further fields of its hello."""
    hello = Hello(
        job=env.job,
        pod=env.pod,
        token="",
        index=env.index,
        address=address,
        nproc=nproc,
        incarnation=uuid.uuid4().hex,
        pod_uid=env.pod_uid,
        **known,
    )
    membership: Membership

    membership = Membership(Client(env, hello, lambda: membership.heartbeat()), address, timeout)
    membership.fence_seconds = seconds(os.environ, FENCE, DEFAULT_FENCE)
    return membership
