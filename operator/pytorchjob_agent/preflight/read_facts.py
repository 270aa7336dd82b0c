"""Reads the facts about this member: torch, the machine, the files and, for `doctor`, the rendezvous endpoint."""

import os
import platform
import resource
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pytorchjob_agent.contract.coordinator_endpoint import TOKEN_FILE, CoordinatorEndpoint
from pytorchjob_agent.contract.environment import TERMINATION_LOG, ReplicaEnv
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.termination import TERMINATION_LOG_PATH
from pytorchjob_agent.preflight import devices
from pytorchjob_agent.preflight.facts import ContainerLimits, Endpoint, Facts, RequiredPath, RunRequest, Torch
from pytorchjob_agent.system import cgroup, network

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_IS_HOST = "is_host"
_PATIENCE = 1.0  # seconds for a name and a connection together


def facts(request: RunRequest, env: Mapping[str, str], read_torch: Callable[[], Torch] = devices.read_torch) -> Facts:
    """Return the facts that need no connection."""
    return Facts(
        request=request,
        env=env,
        contract=_contract(env),
        torch=read_torch(),
        machine=limits(),
        places=places(env),
        python=platform.python_version(),
        clock=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _contract(env: Mapping[str, str]) -> str:
    try:
        ReplicaEnv.from_env(env)
        if env.get(TOKEN_FILE):  # below an agent it is gone, and the agent has read the others
            CoordinatorEndpoint.from_env(env)
    except ContractError as error:
        return str(error)
    return ""


def limits() -> ContainerLimits:
    """Return the limits of this container."""
    return ContainerLimits(
        shm=_size(Path("/dev/shm")),  # noqa: S108 - its size, nothing is written there
        nofile=_limit(resource.RLIMIT_NOFILE),
        memlock=_limit(resource.RLIMIT_MEMLOCK),
        core=_limit(resource.RLIMIT_CORE),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cpus=cgroup.cpus(),
        memory=cgroup.memory(),
        infiniband=Path("/dev/infiniband").is_dir(),
        interfaces=tuple(name for _, name in socket.if_nameindex()),
    )


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _size(path: Path) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def places(env: Mapping[str, str]) -> tuple[RequiredPath, ...]:
    """Return the files that the agent and torch will write."""
    found = [_temporary()]
    log = env.get(TERMINATION_LOG)
    if log or Path(TERMINATION_LOG_PATH).exists():  # outside a pod there is none
        found.append(_file(TERMINATION_LOG, log or TERMINATION_LOG_PATH))
    if env.get(_ERROR_FILE):
        found.append(_file(_ERROR_FILE, env[_ERROR_FILE]))
    return tuple(found)


def _temporary() -> RequiredPath:
    try:
        return RequiredPath("TMPDIR", tempfile.gettempdir(), True)  # it tries to write
    except FileNotFoundError:
        return RequiredPath("TMPDIR", os.environ.get("TMPDIR", "/tmp"), False)  # noqa: S108


def _file(name: str, path: str) -> RequiredPath:
    """Check the file, or the folder in which it would be created."""
    there = os.path.exists(path)
    folder = os.path.dirname(os.path.abspath(path))
    return RequiredPath(name, path, os.access(path, os.W_OK) if there else os.access(folder, os.W_OK | os.X_OK))


def endpoint(env: Mapping[str, str]) -> Endpoint | None:
    """Try the rendezvous endpoint once; None for a job of one pod."""
    with suppress(ContractError):
        replica = ReplicaEnv.from_env(env)
        if replica.rdzv is not None and replica.rdzv.port:
            return _ask(replica.rdzv.host, replica.rdzv.port, _names_host(dict(replica.rdzv.conf)))
        if replica.master_addr and replica.master_port:
            return _ask(replica.master_addr, replica.master_port, replica.rank == 0)
    return None


def _names_host(conf: Mapping[str, str]) -> bool | None:
    return conf[_IS_HOST].lower() in {"1", "true", "t", "yes", "y"} if _IS_HOST in conf else None


def _ask(host: str, port: int, ours: bool | None) -> Endpoint:
    """Resolve the name and connect; a thread whose resolver hangs is abandoned."""
    found = [Endpoint(host, port, bool(ours), f"no answer within {_PATIENCE:g} s", resolves=False)]

    def attempt() -> None:
        endpoint = found[0]
        try:
            network.resolve(host, port)
            endpoint = replace(endpoint, ours=_is_here(host, port) if ours is None else ours, resolves=True)
            found.append(endpoint)
            network.connect(host, port)
            found.append(replace(endpoint, problem=""))
        except OSError as error:
            found.append(replace(endpoint, problem=str(error)))

    thread = threading.Thread(target=attempt, name="endpoint", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return found[-1]


def _is_here(host: str, port: int) -> bool:
    """Return whether the name is this machine's: then this member opens the port."""
    addresses = {str(address[0]) for *_, address in socket.getaddrinfo(host, port)}
    return network.own_address(host, port) in addresses
