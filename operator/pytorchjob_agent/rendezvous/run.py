"""Runs torchrun's configuration as a member of a job with a coordinator."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic import events
from torch.distributed.launcher.api import LaunchConfig

from pytorchjob_agent.contract.environment import DEFAULT_GRACE, GRACE, METRICS_PORT
from pytorchjob_agent.contract.reading import optional_number, seconds
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_agent.preflight import devices, policy
from pytorchjob_agent.rendezvous import own_endpoint
from pytorchjob_agent.rendezvous.agent_metrics import AgentFacts, metrics_text
from pytorchjob_agent.rendezvous.extension import Extensions
from pytorchjob_agent.rendezvous.handler import JOIN_TIMEOUT, CoordinatorRendezvous, member
from pytorchjob_agent.rendezvous.loop import ElasticAgent
from pytorchjob_agent.rendezvous.membership import Membership
from pytorchjob_agent.rendezvous.tools import Tools
from pytorchjob_agent.system import network
from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.metrics_server import MetricsServer
from pytorchjob_agent.workers.fork_client import ForkServer
from pytorchjob_agent.workers.torch_spec import agent_options, worker_spec


@dataclass(frozen=True)
class WorkerStart:
    """How workers are started."""

    directory: Path
    server: ForkServer | None
    """Where warm ones come from."""
    extensions: Callable[..., Extensions]
    """Makes the extensions of a member, by the job's uid, its address and its number of workers."""


def run(
    config: LaunchConfig, program: tuple[Any, list[str]], logs: Any, start: WorkerStart
) -> TerminationMessage | None:
    """Run the workers through all rounds to the end; None when they succeeded."""
    env = own_endpoint.take()
    assert env is not None
    address = config.local_addr or network.own_address(env.host, env.port) or "127.0.0.1"
    timeout = float(config.rdzv_configs.get("join_timeout") or JOIN_TIMEOUT)
    level = policy.versions_level(os.environ)
    versions = {} if level == policy.OFF else _versions()
    warns = level != policy.CheckLevel.FAIL
    membership = member(env, address, config.nproc_per_node, timeout, versions=versions, warnings=warns)
    port = optional_number(os.environ, METRICS_PORT)
    membership.extensions = start.extensions(job=env.job, address=address, nproc=config.nproc_per_node)
    membership.client.start()
    rendezvous = CoordinatorRendezvous(membership, env.job)
    grace = seconds(os.environ, GRACE, DEFAULT_GRACE)
    tools = Tools(logs, start.directory, grace, start.server)
    agent = ElasticAgent(worker_spec(config, *program, rendezvous), membership, tools, **agent_options(config))
    record = getattr(config, "event_log_handler", "null")
    server = _serve(port, agent, membership) if port else None
    try:
        agent.run()
    except Exception:
        events.record(agent.get_event_failed(), record)
        raise
    finally:
        rendezvous.shutdown()
        if server is not None:
            server.close()
    events.record(agent.get_event_succeeded(), record)
    return agent.last_words


def _serve(port: int, agent: ElasticAgent, membership: Membership) -> MetricsServer | None:
    """Serve the metrics. If the port is taken, the agent trains without them."""
    try:
        return MetricsServer(port, lambda: metrics_text(_facts(agent, membership)))
    except (OSError, OverflowError) as error:
        say(f"warning: no metrics on port {port} ({METRICS_PORT}): {error}")
        return None


def _facts(agent: ElasticAgent, membership: Membership) -> AgentFacts:
    peers = membership.heartbeats
    return AgentFacts(
        state=agent.get_worker_group().state.name,
        assigned=membership.assigned,
        heartbeat=membership.heartbeat(),
        coordinator_silence=membership.client.away(),
        peer_silence=peers.silence() if peers is not None else 0.0,
    )


def _versions() -> dict[str, str | None]:
    torch = devices.read_torch()
    return {"python": platform.python_version(), "torch": torch.version, "cuda": torch.cuda, "nccl": torch.nccl}
