"""What a launcher of the user's does in the place of torch's `launch_agent`: its workers train in the job's rounds.

The job's fields decide what torchrun's flags for a rendezvous decide in a run of its own, as `launcher` has it for
`pytorchjob-agent run`. A rendezvous that only this pod, or a store of the user's, takes part in stays torch's.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import run_script_path

from pytorchjob_agent.command import finished_program, flags, launcher, launcher_process
from pytorchjob_agent.command.below import Below
from pytorchjob_agent.contract.coordinator_endpoint import BACKEND, CoordinatorEndpoint
from pytorchjob_agent.contract.environment import DEFAULT_BACKEND, PET_MAX_RESTARTS, PET_NNODES
from pytorchjob_agent.contract.reading import optional_number
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from pytorchjob_agent.preflight import gate
from pytorchjob_agent.preflight.facts import RunRequest
from pytorchjob_agent.rendezvous import own_endpoint
from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.network import shorten_name_lookups
from pytorchjob_agent.workers.failure_report import sentence, write_termination_log
from pytorchjob_agent.workers.started_by import StartedBy
from pytorchjob_agent.workers.torch_spec import STATIC

_REPLACED = (STATIC, DEFAULT_BACKEND, BACKEND)
"""The rendezvous by which the pods of a job find each other without a coordinator."""
_HERE = ("localhost", "127.0.0.1")


def joins(config: LaunchConfig, entrypoint: Any) -> bool:
    """Return whether these workers train in the job's rounds; if not, say why."""
    why = _stays(config, entrypoint)
    if why:
        say(f"{why}: this pod trains without the coordinator")
    return not why


def _stays(config: LaunchConfig, entrypoint: Any) -> str:
    low, high = _nodes_of_job()
    endpoint = own_endpoint.take()
    if endpoint is None or finished_program.is_there(endpoint):
        return finished_program.SENTENCE
    if not isinstance(entrypoint, str) and entrypoint is not run_script_path:
        return "the workers run a function"
    if config.rdzv_backend not in _REPLACED:
        return f"the launcher has the rendezvous {config.rdzv_backend}"
    if not low <= config.min_nodes <= config.max_nodes <= high:
        return f"the launcher wants {config.min_nodes} to {config.max_nodes} nodes, and the job has {low} to {high}"
    host, _ = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=0)
    if high > 1 and config.rdzv_backend == DEFAULT_BACKEND and host in _HERE:
        return f"the launcher has a rendezvous at {host}"
    return ""


def run(config: LaunchConfig, entrypoint: Any, args: list[Any], below: Below | None) -> dict[int, Any]:
    """Run the workers through all rounds. Raises SystemExit if they have not succeeded.

    `below` is None in a process that nobody supervises.
    """
    if below is not None:
        directory = below.begin()
        message = launcher_process.explained(lambda: _run(config, (entrypoint, args), directory))
        code = launcher_process.leave(message, below)
    else:
        with tempfile.TemporaryDirectory(prefix="pytorchjob-agent-") as name:
            message = launcher_process.explained(lambda: _run(config, (entrypoint, args), Path(name)))
        code = _report(message)
    if code != ExitCode.OK:
        raise SystemExit(code)
    return {}


def _report(message: TerminationMessage | None) -> int:
    """Write the reason of the end, as a first process does; returns the exit code."""
    if message is None:
        return ExitCode.OK
    say(sentence(message))
    write_termination_log(message, os.environ)
    return launcher_process.exit_code(message)


def _run(config: LaunchConfig, entrypoint: launcher.Entrypoint, directory: Path) -> TerminationMessage | None:
    shorten_name_lookups()
    launcher_process.join()
    coordinator = own_endpoint.take()
    assert coordinator is not None, "without a coordinator no process becomes a member"
    low, high = _in_rounds(config, coordinator)
    gate.check(RunRequest.of(str(config.nproc_per_node), f"{low}:{high}", True))
    return launcher.launch(config, entrypoint, directory, StartedBy.LAUNCHER)


def _nodes_of_job() -> tuple[int, int]:
    return flags.nnodes(os.environ.get(PET_NNODES) or "1")


def _in_rounds(config: LaunchConfig, coordinator: CoordinatorEndpoint) -> tuple[int, int]:
    """Take the rendezvous and its numbers from the job; returns the least and the most nodes."""
    low, high = _nodes_of_job()
    config.rdzv_backend, config.rdzv_endpoint = BACKEND, f"{coordinator.host}:{coordinator.port}"
    config.run_id, config.min_nodes, config.max_nodes = coordinator.job, low, high
    config.max_restarts = optional_number(os.environ, PET_MAX_RESTARTS) or 0  # TORCHELASTIC_MAX_RESTARTS
    config.rdzv_configs = {name: value for name, value in config.rdzv_configs.items() if name == flags.JOIN_TIMEOUT}
    return low, high
