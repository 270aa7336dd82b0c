"""Our rendezvous as torch knows it: a RendezvousHandler, for our own agent and for an unmodified torchrun.

torchrun finds it by the entry point `torchrun.handlers`. Its agent reports no failures to a handler: a rendezvous
without a command counts as one, and `injected_workers` explains it.
"""

import os
import socket
import uuid
from typing import Any, NoReturn

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from torch.distributed.run import determine_local_world_size

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.coordinator_endpoint import BACKEND, COORDINATOR, CoordinatorEndpoint
from pytorchjob_agent.contract.environment import DEFAULT_FENCE, FENCE, PET_NPROC_PER_NODE, ROUND_ID
from pytorchjob_agent.contract.messages import Hello, Message
from pytorchjob_agent.contract.reading import ContractError, seconds
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.rendezvous import exit_barrier, own_endpoint, waiting
from pytorchjob_agent.rendezvous.coordinator_client import Client
from pytorchjob_agent.rendezvous.injected_workers import InjectedWorkers
from pytorchjob_agent.rendezvous.membership import Membership, NoRoundError, PeerError
from pytorchjob_agent.system import network
from pytorchjob_agent.system.console import say

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
        """Return a number above 0 if torch's agent has to restart its workers."""
        inbox, heartbeats = self.membership.client.inbox, self.membership.heartbeats
        asked = self.membership.client.absent() and heartbeats is not None and heartbeats.restart is not None
        asked = asked or self.membership.cut_off()
        return int(inbox.restart is not None or inbox.assigned is not None or inbox.stop is not None or asked)

    def get_run_id(self) -> str:
        """Return the run's id."""
        return self._run_id

    def shutdown(self) -> bool:
        """Leave."""
        self.membership.close()
        return True


class InjectedRendezvous(CoordinatorRendezvous):
    """The same below torch's own agent, which asks for each round."""

    def __init__(self, membership: Membership, run_id: str, environment: dict[str, str]) -> None:
        """Take over a membership that has not begun. `environment`: with which this process started."""
        super().__init__(membership, run_id)
        self._environment, self._workers = environment, InjectedWorkers()

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round; without a command to do so, report that workers failed."""
        reports: tuple[Message, ...] = ()
        if (last := self.membership.assigned) is not None:
            failed = self._workers.told(last) if self.num_nodes_waiting() else self._workers.failure(last)
            reports = (failed,) if failed is not None else ()
        try:
            assigned = self.membership.next_round(*reports)
        except NoRoundError as error:
            say(str(error))
            raise SystemExit(_exit_code(error.end)) from error  # torch's agent would exit with 1 for every error
        except PeerError as error:
            say(str(error))
            raise SystemExit(int(ExitCode.RENDEZVOUS)) from error
        self._workers.begin()
        os.environ[ROUND_ID] = str(assigned.round)  # torch's agent gives its own environment to its workers
        info = super().next_rendezvous()
        store = exit_barrier.StoreWithBarrier(info.store, self._wait_for_all)
        return RendezvousInfo(store, info.rank, info.world_size, info.bootstrap_store_info)  # type: ignore[arg-type]

    def num_nodes_waiting(self) -> int:
        """Return a number above 0 if torch's agent has to restart its workers."""
        waiting = super().num_nodes_waiting()
        if waiting:
            self._workers.tell()
        return waiting

    def _wait_for_all(self) -> None:
        exit_barrier.wait_for_all(self.membership, self._start_again)

    def _start_again(self) -> NoReturn:
        self.membership.close()
        exit_barrier.start_again(self._environment)


def _exit_code(end: waiting.End) -> int:
    match end:
        case waiting.Stopped(stop):
            return stop.exit_code
        case waiting.Fenced():
            return int(ExitCode.FENCED)
        case waiting.Leaving() | waiting.NotReached():
            return int(ExitCode.RENDEZVOUS)


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


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Make the handler for an unmodified torchrun."""
    environment = dict(os.environ)
    env = own_endpoint.take()
    if env is None:
        raise ContractError(f"--rdzv-backend {BACKEND}: {COORDINATOR} is not set: only the operator can set it")
    network.shorten_name_lookups()
    torch_compat.use_plain_stores()
    address = parameters.local_addr or network.own_address(env.host, env.port) or socket.gethostname()
    nproc = determine_local_world_size(os.environ.get(PET_NPROC_PER_NODE, "1"))
    timeout = float(parameters.get("join_timeout") or JOIN_TIMEOUT)
    membership = member(env, address, nproc, timeout)
    membership.client.start()
    return InjectedRendezvous(membership, parameters.run_id, environment)


def factory() -> Any:
    """Return what torch's entry point group `torchrun.handlers` asks for."""
    return create
