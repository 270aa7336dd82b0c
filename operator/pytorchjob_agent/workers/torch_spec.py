"""Turns torchrun's configuration into the parameters of torch's agent that the installed version of torch knows."""

from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousHandler
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from pytorchjob_agent import torch_compat

STATIC = "static"


def worker_spec(config: LaunchConfig, command: Any, command_args: list[str], handler: RendezvousHandler) -> WorkerSpec:
    """Return torch's specification of the workers: command, number, rendezvous."""
    static = config.rdzv_backend == STATIC
    host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=-1) if static else (None, None)
    newer = ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank")
    known = torch_compat.supported(
        WorkerSpec.__init__,
        role=config.role,
        local_world_size=config.nproc_per_node,
        rdzv_handler=handler,
        entrypoint=command,
        args=tuple(command_args),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=host,
        master_port=port,
        local_addr=config.local_addr,
        event_log_handler=getattr(config, "event_log_handler", "null"),
        **{name: getattr(config, name) for name in newer if hasattr(config, name)},
    )
    return WorkerSpec(**known)


def agent_options(config: LaunchConfig) -> dict[str, Any]:
    """Return the parameters of LocalElasticAgent other than the spec."""
    return torch_compat.supported(
        LocalElasticAgent.__init__,
        logs_specs=config.logs_specs,
        start_method=config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        shutdown_timeout=getattr(config, "shutdown_timeout", None) or 30,
    )
