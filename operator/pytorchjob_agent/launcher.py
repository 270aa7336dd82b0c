"""Runs the workers with torch's LocalElasticAgent, as torchrun does, and says what came of it.

The only module that imports torch; it runs in a process of its own, below the one that handles signals.
"""

import argparse
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from torch.distributed.elastic import events
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, LogsDest, SignalException
from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous import registry as rendezvous_registry
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, get_args_parser, parse_min_max_nnodes

from . import alone, compat, reach
from .contract import DEFAULT_RDZV_PORT, ContractError, Reason, TerminationMessage, exit_code_of
from .logs import Pump, Stream
from .outer import nested, without_outer
from .ports import LOOPBACK
from .report import Failure, explain

_PREFIX = "[rank{rank}]: "
_JOIN_TIMEOUT = 600  # torch's own, for both kinds of rendezvous
_STATIC = "static"


class PipedLogs(DefaultLogsSpecs):
    """Sends each worker's output through a pump; error files stay as torch makes them."""

    def __init__(self, directory: Path) -> None:
        """Keep everything below `directory`, which somebody else removes."""
        super().__init__(log_dir=str(directory))
        self._rounds = 0
        self._pump: Pump | None = None
        self._streams: dict[int, tuple[Stream, Stream]] = {}

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the pipes of one round."""
        self.close()
        destinations = super().reify(envs)
        self._rounds += 1
        directory = Path(self.root_log_dir) / f"pipes-{self._rounds}"
        directory.mkdir()
        self._pump = Pump(directory)
        for local_rank, env in envs.items():
            prefix = _PREFIX.format(rank=env["RANK"])
            path, out = self._pump.attach(f"{local_rank}.out", prefix, sys.stdout.buffer)
            destinations.stdouts[local_rank] = path
            path, err = self._pump.attach(f"{local_rank}.err", prefix, sys.stderr.buffer)
            destinations.stderrs[local_rank] = path
            self._streams[local_rank] = (out, err)
        self._pump.start()
        return destinations

    def close(self) -> None:
        """Print what is left of the last round."""
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    def tail(self, local_rank: int) -> str:
        """Return the end of what the worker wrote: of its errors, else of its output."""
        out, err = self._streams.get(local_rank, (None, None))
        text = (err.tail if err else b"") or (out.tail if out else b"")
        return bytes(text).decode(errors="replace")


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse torchrun's arguments by torchrun's parser: PET_* variables are defaults, flags win over them."""
    args = get_args_parser().parse_args(argv)
    if args.standalone:
        return _standalone(argv)
    alone_too = args.rdzv_backend == _STATIC and not args.rdzv_endpoint and args.master_port is None
    if alone_too and parse_min_max_nnodes(args.nnodes)[1] == 1:
        return _alone(args, 0)
    if args.master_port is None:
        args.master_port = 29500
    return args


def _standalone(argv: list[str]) -> argparse.Namespace:
    """Parse again, without what a job around this run left in the environment."""
    kept = without_outer(os.environ, below_worker=nested(os.environ))
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]  # the workers inherit it
    parser = get_args_parser()
    parser.set_defaults(master_port=0)  # older torch has 29500 here
    args = parser.parse_args(argv)
    if parse_min_max_nnodes(args.nnodes)[1] != 1:
        raise ContractError(f"--nnodes: {args.nnodes} with --standalone: expected 1, or no flag at all")
    return _alone(args, args.master_port)


def _alone(args: argparse.Namespace, port: int) -> argparse.Namespace:
    args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = alone.BACKEND, f"{LOOPBACK}:{port}", str(uuid.uuid4())
    args.master_port = port
    return args


def run(args: argparse.Namespace, directory: Path) -> TerminationMessage | None:
    """Run the workers that `parse` was told of to their end; None when they succeeded."""
    compat.separate_stores()
    compat.use_plain_stores()
    config, command, command_args = config_from_args(args)
    logs = _logs(args, directory)
    if logs is not None:
        config.logs_specs = logs
    # The numbers of signals that torch handles once workers run; before that the kernel's defaults end us.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = getattr(config, "signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    _meet(config)
    agent = _agent(config, command, command_args)
    try:
        result = _run_agent(agent, config)
    except SignalException as error:
        return TerminationMessage(Reason.DRAINED, exit_code_of(-error.sigval), message=str(error))
    finally:
        if logs is not None:
            logs.close()
    if result is None or not result.is_failed():
        return None
    return explain([_failure(rank, one, logs) for rank, one in result.failures.items()])


def _logs(args: argparse.Namespace, directory: Path) -> PipedLogs | None:
    """Return our pipes, or None where the user asked torchrun for something else with its output."""
    chosen = (args.tee != "0", args.redirects != "0", args.log_dir, args.logs_specs, args.local_ranks_filter)
    template = args.log_line_prefix_template or os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
    if any(chosen) or template or args.run_path:
        return None
    return PipedLogs(Path(tempfile.mkdtemp(prefix="logs-", dir=directory)))


def _meet(config: LaunchConfig) -> None:
    """Wait for the meeting place, and for whoever opens it if that is not us."""
    host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=DEFAULT_RDZV_PORT)
    if port == 0 or config.rdzv_backend not in (_STATIC, "c10d"):
        return
    wanted = config.rdzv_configs.get("timeout" if config.rdzv_backend == _STATIC else "join_timeout")
    timeout = float(wanted or _JOIN_TIMEOUT)
    reach.wait_until(reach.resolve, host, port, timeout)
    if not _hosts(config, host):
        reach.wait_until(reach.connect, host, port, timeout)
    if config.rdzv_backend != _STATIC and not config.local_addr:
        config.local_addr = reach.own_address(host, port)


def _hosts(config: LaunchConfig, host: str) -> bool:
    """Whether the store is, or may be, opened by this agent: then nobody can be waited for."""
    if config.rdzv_backend == _STATIC:
        return bool(config.rdzv_configs["rank"] == 0)
    wanted = str(config.rdzv_configs.get("is_host", "")).lower()
    if wanted:
        return wanted in {"1", "true", "t", "yes", "y"}
    try:
        from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname
    except ImportError:
        return True
    return _matches_machine_hostname(host)


def _agent(config: LaunchConfig, command: Any, command_args: list[str]) -> LocalElasticAgent:
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id or str(uuid.uuid4()),
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        **compat.supported(RendezvousParameters.__init__, local_addr=config.local_addr),
        **config.rdzv_configs,
    )
    rendezvous_handler_registry.register(alone.BACKEND, alone.create)
    spec = WorkerSpec(**_spec(config, command, command_args, parameters))
    options = compat.supported(
        LocalElasticAgent.__init__,
        logs_specs=config.logs_specs,
        start_method=config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        shutdown_timeout=getattr(config, "shutdown_timeout", None) or 30,
    )
    return LocalElasticAgent(spec=spec, **options)


def _spec(config: LaunchConfig, command: Any, command_args: list[str], rdzv: RendezvousParameters) -> dict[str, Any]:
    """Return the parameters of WorkerSpec that this torch knows."""
    static = config.rdzv_backend == _STATIC
    host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=-1) if static else (None, None)
    newer = ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank")
    return compat.supported(
        WorkerSpec.__init__,
        role=config.role,
        local_world_size=config.nproc_per_node,
        rdzv_handler=rendezvous_registry.get_rendezvous_handler(rdzv),
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


def _run_agent(agent: LocalElasticAgent, config: LaunchConfig) -> Any:
    """Run to the end, then close the rendezvous; a signal leaves it open for the others, as torchrun does."""
    handler = getattr(config, "event_log_handler", "null")
    try:
        result = agent.run()
    except Exception:
        events.record(agent.get_event_failed(), handler)
        raise
    events.record(agent.get_event_succeeded(), handler)
    agent.get_worker_group().spec.rdzv_handler.shutdown()
    return result


def _failure(rank: int, failure: Any, logs: PipedLogs | None) -> Failure:
    data = failure.error_file_data if os.path.isfile(failure.error_file) else {}  # torch's filler says nothing
    return Failure(
        rank=rank,
        local_rank=failure.local_rank,
        returncode=failure.exitcode,
        timestamp=failure.timestamp,
        error=data if isinstance(data, dict) else {},
        tail=logs.tail(failure.local_rank) if logs is not None else "",
    )
