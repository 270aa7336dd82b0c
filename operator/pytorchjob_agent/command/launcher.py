"""Runs the workers with torch's LocalElasticAgent, as torchrun does, and returns the termination message.

It runs in `launcher_process`. With a coordinator, `rendezvous/run` takes over; otherwise the rendezvous is torch's own,
or `rendezvous/single_node` for a single node.
"""

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed.elastic import events
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous import registry as rendezvous_registry
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, get_args_parser

from pytorchjob_agent import extensions, torch_compat
from pytorchjob_agent.command import finished_program, flags
from pytorchjob_agent.command.flags import UsageError
from pytorchjob_agent.command.isolation import runs_below_worker, without_job_variables
from pytorchjob_agent.command.program_port import ProgramPort
from pytorchjob_agent.contract.coordinator_endpoint import BACKEND, CoordinatorEndpoint
from pytorchjob_agent.contract.environment import DEFAULT_RDZV_PORT, PET_MAX_RESTARTS, PET_NNODES
from pytorchjob_agent.contract.noted_end import ENDS
from pytorchjob_agent.contract.reading import ContractError, optional_number
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.repeated import SHORT_SECONDS, why_repeated
from pytorchjob_agent.contract.termination import TerminationMessage, exit_code_of
from pytorchjob_agent.rendezvous import own_endpoint, single_node
from pytorchjob_agent.rendezvous import run as elastic
from pytorchjob_agent.rendezvous.extension import Extension, Extensions, OwnPod
from pytorchjob_agent.rendezvous.failure_messages import explain
from pytorchjob_agent.system import network, open_files
from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.ports import LOOPBACK
from pytorchjob_agent.workers import start_choice, uncaught_error, warm
from pytorchjob_agent.workers.fork_client import ForkServer
from pytorchjob_agent.workers.started_by import StartedBy
from pytorchjob_agent.workers.torch_output import PipedLogs
from pytorchjob_agent.workers.torch_spec import STATIC as _STATIC
from pytorchjob_agent.workers.torch_spec import agent_options, worker_spec

Entrypoint = tuple[Any, list[str]]
"""What torch starts: a command, or a function for --run-path; and its arguments."""
_JOIN_TIMEOUT = 600  # torch's own, for both kinds of rendezvous


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse torchrun's arguments with torchrun's parser: PET_* variables are defaults, flags take precedence.

    In a job with a coordinator the job's fields decide some of them; `flags` has the table. Raises UsageError.
    """
    args = _parser(None).parse_args(argv)
    flags.check(args)
    if args.standalone:
        return _standalone(argv)
    coordinator = own_endpoint.take()
    if coordinator is not None and not _names_rendezvous(given := _given(argv)):
        if finished_program.is_there(coordinator):
            raise ContractError(f"{finished_program.SENTENCE}: start one agent in a container, with one script")
        _report(flags.overridden(given, os.environ))
        return _in_rounds(args, coordinator)
    flags.check_static(args)
    may_be_single = args.rdzv_backend == _STATIC and not args.rdzv_endpoint and args.master_port is None
    if may_be_single and flags.nnodes(args.nnodes)[1] == 1:
        return _single_node(args, 0)
    if args.master_port is None:
        args.master_port = 29500
    return args


def _parser(default_port: int | None) -> argparse.ArgumentParser:
    """Return torchrun's parser; it raises UsageError where it would print its usage and exit."""
    parser = get_args_parser()
    vars(parser)["error"] = _refuse
    torch_compat.set_default_port(parser, default_port)
    return parser


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"torchrun's arguments are wrong: {message}")


def _report(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def _given(argv: list[str]) -> dict[str, str]:
    """Return the flags of the command line by the parser's name, without those that variables set."""
    parser, unset = _parser(None), object()
    parser.set_defaults(**dict.fromkeys(vars(parser.parse_args(argv)), unset))
    return {name: str(value) for name, value in vars(parser.parse_args(argv)).items() if value is not unset}


def _in_rounds(args: argparse.Namespace, coordinator: CoordinatorEndpoint) -> argparse.Namespace:
    """Take a member's rendezvous and its numbers from the job."""
    args.rdzv_backend, args.rdzv_endpoint = BACKEND, f"{coordinator.host}:{coordinator.port}"
    args.rdzv_id, args.master_port = coordinator.job, 0
    args.node_rank = 0  # each round assigns the node rank; torch would warn that it ignores this one
    args.nnodes = os.environ.get(PET_NNODES) or args.nnodes
    args.max_restarts = optional_number(os.environ, PET_MAX_RESTARTS) or 0  # the workers' TORCHELASTIC_MAX_RESTARTS
    return args


def _names_rendezvous(given: Mapping[str, str]) -> bool:
    """Return whether the command line has a rendezvous of the user's own, which replaces the operator's."""
    own = [name for name in ("rdzv_backend", "rdzv_endpoint") if given.get(name, BACKEND) != BACKEND]
    if own:
        say(f"{flags.spelling(own[0])} is given: this pod trains without the coordinator, as with torchrun")
    return bool(own)


def _standalone(argv: list[str]) -> argparse.Namespace:
    """Parse again, without the variables of a job around this run."""
    kept = without_job_variables(os.environ, below_worker=runs_below_worker(os.environ))
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]  # the workers inherit it
    args = _parser(0).parse_args(argv)
    if flags.nnodes(args.nnodes)[1] != 1:
        raise ContractError(f"--nnodes: {args.nnodes} with --standalone: expected 1, or no flag")
    _report(flags.overridden_standalone(_given(argv)))
    return _single_node(args, args.master_port)


def _extensions(*more: Extension, job: str, address: str, nproc: int) -> Extensions:
    return Extensions(*extensions.create(OwnPod(os.environ, job, address, nproc)).all, *more)


def _single_node(args: argparse.Namespace, port: int) -> argparse.Namespace:
    args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = single_node.BACKEND, f"{LOOPBACK}:{port}", str(uuid.uuid4())
    args.master_port = port
    return args


def run(
    args: argparse.Namespace, directory: Path, started_by: StartedBy, early: ForkServer | None = None
) -> TerminationMessage | None:
    """Run the workers to their end; None if they succeeded.

    `early` is a fork server that has started its imports; it is used or stopped.
    """
    config, command, command_args = _config(args)
    if hasattr(config, "numa_options") and args.numa_binding is None and start_choice.wants_warm(os.environ):
        config.numa_options = None  # torch's default on a machine with GPUs, with which every start is a cold one
    return launch(config, (command, command_args), directory, started_by, early)


def launch(
    config: LaunchConfig,
    entrypoint: Entrypoint,
    directory: Path,
    started_by: StartedBy,
    early: ForkServer | None = None,
) -> TerminationMessage | None:
    """Run what torch would run with this configuration; the result is that of `run`."""
    os.environ.pop(ENDS, None)  # this agent reads what its workers note
    torch_compat.separate_stores()
    torch_compat.use_plain_stores()
    torch_compat.keep_tracebacks_cheap()
    open_files.allow_for(config.nproc_per_node)
    logs = _logs(config, entrypoint, directory, started_by)
    if logs is not None:
        config.logs_specs = logs
    # The signals that torch handles once workers run; before that the kernel's defaults end this process.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = getattr(config, "signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    if config.rdzv_backend == BACKEND:
        server = warm.start_server(config, entrypoint, early)  # it imports during the rendezvous
        programs = (ProgramPort(),) if started_by is StartedBy.COMMAND else ()
        start = elastic.WorkerStart(directory, server, partial(_extensions, *programs))
        return _run_elastic(config, entrypoint, start)
    if early is not None:
        early.close()
    uncaught_error.use_hook(os.environ)
    _wait_for_endpoint(config)
    agent = _agent(config, *entrypoint, logs)
    try:
        result = _run_agent(agent, config)
    except SignalException as error:
        return TerminationMessage(ExitReason.DRAINED, exit_code_of(-error.sigval), message=str(error))
    finally:
        if logs is not None:
            logs.close()
    if result is None or not result.is_failed():
        return None
    return _explained(agent, result, logs)


def _explained(agent: LocalElasticAgent, result: RunResult, logs: PipedLogs | None) -> TerminationMessage:
    return explain(torch_compat.failures(agent, result), agent.get_worker_group(), (), logs)


class _Agent(LocalElasticAgent):
    """torch's agent, which starts no workers again after a failure that every start repeats."""

    def __init__(self, *, logs: PipedLogs | None, **options: Any) -> None:
        super().__init__(**options)
        self._logs, self._started_at = logs, 0.0

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._started_at = time.monotonic()
        started: dict[int, Any] = super()._start_workers(worker_group)
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED and self._remaining_restarts > 0 and result.failures:
            found = _explained(self, result, self._logs)
            early = time.monotonic() - self._started_at < SHORT_SECONDS
            if why := why_repeated(found.errors, found.exit_code, early=early):
                say(why)
                self._remaining_restarts = 0
        return result


def _config(args: argparse.Namespace) -> tuple[LaunchConfig, Any, list[str]]:
    """Return torchrun's configuration; raises UsageError for what torchrun refuses."""
    try:
        config, command, command_args = config_from_args(args)
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UsageError(f"torchrun refuses its arguments: {error}") from error
    return config, command, command_args


def _run_elastic(config: LaunchConfig, entrypoint: Entrypoint, start: elastic.WorkerStart) -> TerminationMessage | None:
    """Run as a member of the job's rounds."""
    logs = config.logs_specs if isinstance(config.logs_specs, PipedLogs) else None
    try:
        message = elastic.run(config, entrypoint, logs, start)
        if message is None and (endpoint := own_endpoint.take()) is not None:
            finished_program.remember(endpoint)
        return message
    finally:
        if logs is not None:
            logs.close()
        if start.server is not None:
            start.server.close()


def _logs(config: LaunchConfig, entrypoint: Entrypoint, directory: Path, started_by: StartedBy) -> PipedLogs | None:
    """Return the agent's pipes, or None if the user chose torchrun's own options for the output."""
    if not isinstance(entrypoint[0], str) or not torch_compat.has_default_output(config):  # a function: of --run-path
        return None
    return PipedLogs(Path(tempfile.mkdtemp(prefix="logs-", dir=directory)), started_by)


def _wait_for_endpoint(config: LaunchConfig) -> None:
    """Wait until the endpoint resolves and, unless this agent opens it, until it answers."""
    host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=DEFAULT_RDZV_PORT)
    if port == 0 or config.rdzv_backend not in (_STATIC, "c10d"):
        return
    wanted = config.rdzv_configs.get("timeout" if config.rdzv_backend == _STATIC else "join_timeout")
    timeout = float(wanted or _JOIN_TIMEOUT)
    network.wait_until(network.resolve, host, port, timeout)
    if not _opens_store(config, host):
        network.wait_until(network.connect, host, port, timeout)
    if config.rdzv_backend != _STATIC and not config.local_addr:
        config.local_addr = network.own_address(host, port)


def _opens_store(config: LaunchConfig, host: str) -> bool:
    """Return whether this agent opens, or may open, the store: then it cannot wait for it."""
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


def _agent(config: LaunchConfig, command: Any, command_args: list[str], logs: PipedLogs | None) -> LocalElasticAgent:
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id or str(uuid.uuid4()),
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        **torch_compat.supported(RendezvousParameters.__init__, local_addr=config.local_addr),
        **config.rdzv_configs,
    )
    rendezvous_handler_registry.register(single_node.BACKEND, single_node.create)
    try:
        handler = rendezvous_registry.get_rendezvous_handler(parameters)
    except ContractError:  # our own: a port that is taken
        raise
    except ValueError as error:  # an unknown backend, or a setting that it cannot read
        raise UsageError(f"--rdzv-backend={config.rdzv_backend}: {error}") from error
    spec = worker_spec(config, command, command_args, handler)
    agent = _Agent(logs=logs, spec=spec, **agent_options(config))
    torch_compat.keep_rendezvous(agent)  # the end of the run closes it
    return agent


def _run_agent(agent: LocalElasticAgent, config: LaunchConfig) -> Any:
    """Run to the end, then close the rendezvous; after a signal it stays open for other agents, as in torchrun."""
    handler = getattr(config, "event_log_handler", "null")
    try:
        result = agent.run()
    except Exception:
        events.record(agent.get_event_failed(), handler)
        raise
    events.record(agent.get_event_succeeded(), handler)
    agent.get_worker_group().spec.rdzv_handler.shutdown()
    return result
