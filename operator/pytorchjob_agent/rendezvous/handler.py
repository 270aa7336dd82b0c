"""Our rendezvous as torch knows it: a RendezvousHandler, for our own agent and for an unmodified torchrun.

torchrun finds it by the entry point `torchrun.handlers`. Its agent tells a handler nothing of failures: a rendezvous
that nobody ordered is one.
"""

import os
import socket
import uuid
from typing import Any

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from torch.distributed.run import determine_local_world_size

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.coordinator_endpoint import BACKEND, COORDINATOR, CoordinatorEndpoint
from pytorchjob_agent.contract.environment import PET_NPROC_PER_NODE
from pytorchjob_agent.contract.messages import CAUSE_UNKNOWN, Done, Failed, Hello, Message
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.rendezvous.coordinator_client import Client, Standing
from pytorchjob_agent.rendezvous.membership import Membership, NobodyError, PeerError, StoppedError
from pytorchjob_agent.system import network
from pytorchjob_agent.system.console import say

JOIN_TIMEOUT = 600.0


class Meeting(RendezvousHandler):
    """Puts the agent into the rounds that the coordinator decides."""

    def __init__(self, membership: Membership, run_id: str) -> None:
        """Take over a membership that has not begun."""
        self.membership = membership
        self._run_id = run_id
        self.tell: tuple[Message, ...] = ()
        self.by_members = False

    def get_backend(self) -> str:
        """Return the name in torch's registry."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Tell the workers that rank 0's agent keeps the store: rank 0 connects like the others."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round."""
        told, by_members = self.tell, self.by_members
        self.tell, self.by_members = (), False
        assigned = self.membership.next_round(*told, by_members=by_members)
        info = RendezvousStoreInfo(assigned.master_address, assigned.master_port)
        return RendezvousInfo(self.membership.store, assigned.rank, assigned.size, info)

    def is_closed(self) -> bool:
        """Whether the coordinator has ended the job."""
        return self.membership.client.inbox.stop is not None

    def set_closed(self) -> None:
        """Nobody closes a job's rounds but the coordinator."""

    def num_nodes_waiting(self) -> int:
        """Tell torch's agent to restart its workers: by a number above 0."""
        inbox, pulse = self.membership.client.inbox, self.membership.pulse
        wanted = pulse is not None and pulse.wanted is not None
        return int(inbox.restart is not None or inbox.assigned is not None or inbox.stop is not None or wanted)

    def get_run_id(self) -> str:
        """Return the run's id."""
        return self._run_id

    def shutdown(self) -> bool:
        """Leave."""
        self.membership.close()
        return True


class Injected(Meeting):
    """The same below torch's own agent."""

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round, and say that workers failed where nobody asked for another one."""
        if self.membership.assigned is not None and not self.num_nodes_waiting():
            self.tell = (_unexplained(self.membership),)
        try:
            return super().next_rendezvous()
        except StoppedError as error:
            say(error.stop.message)
            raise SystemExit(error.stop.exit_code) from error  # torch's agent would make 1 of every error
        except (PeerError, NobodyError) as error:
            say(str(error))
            raise SystemExit(int(ExitCode.RENDEZVOUS)) from error

    def shutdown(self) -> bool:
        """Say that the workers are done, and wait until everybody's are."""
        client, assigned = self.membership.client, self.membership.assigned
        if assigned is not None:
            client.stand(Done(assigned.round), done=True)
            client.wait(lambda inbox: inbox.finished or inbox.stop is not None, 5.0)
        return super().shutdown()


def _unexplained(membership: Membership) -> Failed:
    assigned = membership.assigned
    assert assigned is not None
    return Failed(assigned.round, assigned.first_rank, 0, 1, CAUSE_UNKNOWN)


def member(
    env: CoordinatorEndpoint, address: str, nproc: int, timeout: float = JOIN_TIMEOUT, **known: Any
) -> Membership:
    """Make the membership of this process; `known` are further fields of its hello."""
    hello = Hello(
        job=env.job,
        pod=env.pod,
        token=env.token,
        index=env.index,
        address=address,
        nproc=nproc,
        incarnation=uuid.uuid4().hex,
        pod_uid=env.pod_uid,
        **known,
    )
    membership: Membership

    membership = Membership(Client(env, Standing(hello), lambda: membership.beat()), address, timeout)
    return membership


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Make the handler for an unmodified torchrun."""
    env = CoordinatorEndpoint.from_env(os.environ)
    if env is None:
        raise ContractError(f"--rdzv-backend {BACKEND}: {COORDINATOR} is not set: only the operator can set it")
    network.shorten_name_lookups()
    torch_compat.use_plain_stores()
    address = parameters.local_addr or network.own_address(env.host, env.port) or socket.gethostname()
    nproc = determine_local_world_size(os.environ.get(PET_NPROC_PER_NODE, "1"))
    timeout = float(parameters.get("join_timeout") or JOIN_TIMEOUT)
    membership = member(env, address, nproc, timeout)
    membership.client.start()
    return Injected(membership, parameters.run_id)


def factory() -> Any:
    """Return what torch's entry point group `torchrun.handlers` asks for."""
    return create
