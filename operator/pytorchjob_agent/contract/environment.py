"""A replica's environment: the operator writes it with `to_env`, the agent reads it with `from_env`. Pure.

This file has the variables that describe the replica and its rendezvous, and those that set up the agent. Further
variables: the coordinator's address in `coordinator_endpoint`, the hang rules in `hang_rules`, and the paths of the
files between agent and worker in `script/progress_file` and `workers/startup`. What a worker gets of the agent besides
is gathered in `rendezvous/round_workers`, and what extensions change in `extensions`. The agent reads this environment
in `command/launcher_process`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from pytorchjob_agent.contract.reading import ContractError, optional_number, switch, whole_number

PYTHONUNBUFFERED = "PYTHONUNBUFFERED"
MASTER_PORT = "MASTER_PORT"
PET_MASTER_PORT = "PET_MASTER_PORT"
MASTER_ADDR = "MASTER_ADDR"
PET_MASTER_ADDR = "PET_MASTER_ADDR"
WORLD_SIZE = "WORLD_SIZE"
RANK = "RANK"
PET_NODE_RANK = "PET_NODE_RANK"
PET_NPROC_PER_NODE = "PET_NPROC_PER_NODE"
PET_NNODES = "PET_NNODES"
PET_RDZV_ENDPOINT = "PET_RDZV_ENDPOINT"
PET_RDZV_BACKEND = "PET_RDZV_BACKEND"
PET_MAX_RESTARTS = "PET_MAX_RESTARTS"
PET_RDZV_ID = "PET_RDZV_ID"
PET_RDZV_CONF = "PET_RDZV_CONF"
PET_STANDALONE = "PET_STANDALONE"
SEPARATE_STORES = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # torch's: 1 gives every round a store of its own

# Only the agent reads these; all are optional.
TERMINATION_LOG = "PYTORCHJOB_TERMINATION_LOG"  # a file
GRACE = "PYTORCHJOB_GRACE_SECONDS"
FENCE = "PYTORCHJOB_FENCE_SECONDS"
PREFLIGHT = "PYTORCHJOB_PREFLIGHT"  # warn, fail or off; PYTORCHJOB_PREFLIGHT_<CHECK> sets one check
SURVIVE = "PYTORCHJOB_SURVIVE"  # auto: workers go on without a lost member
START_MODE = "PYTORCHJOB_START_MODE"  # cold, warm, auto or ready
OBSERVE_PROGRESS = "PYTORCHJOB_OBSERVE_PROGRESS"  # 0: progress comes from calls of progress() alone
FIND_STRAGGLERS = "PYTORCHJOB_FIND_STRAGGLERS"  # 0: no rank is measured, and none is named as slow
GPUS = "PYTORCHJOB_GPUS"  # how many GPUs the container's limits ask for; unset: none, or parts of GPUs
PRELOAD = "PYTORCHJOB_PRELOAD"  # modules that the fork server imports beside torch, separated by commas
NODE = "PYTORCHJOB_NODE"  # the name of the pod's node: copies of checkpoints go to other nodes first
FIRST_PROCESS_PARENT = "PYTORCHJOB_FIRST_PROCESS_PARENT"
"""The pid of what starts a replica's first process in a local run; unset: a container, whose first process is 1."""
METRICS_PORT = "PYTORCHJOB_METRICS_PORT"  # where Prometheus reads the agent's metrics; unset: nowhere

# The agent sets it for its workers in each round, and COORDINATOR's JOB beside it; checkpoint/ reads both.
ROUND_ID = "PYTORCHJOB_ROUND_ID"  # TERM.NUMBER, or TERM.NUMBER.ATTEMPT after an agreement without a coordinator

DEFAULT_BACKEND = "c10d"
DEFAULT_RDZV_PORT = 29400  # torchrun's own, for an endpoint without a port
DEFAULT_FENCE = 240.0  # below the 300 s after which Kubernetes replaces the pods of a node that it does not hear
DEFAULT_GRACE = 25.0  # below Kubernetes' default grace of 30 s, so that the agent can still report why it ends


@dataclass(frozen=True, slots=True)
class RendezvousOptions:
    """The rendezvous of an elastic job: torchrun's --rdzv-* options."""

    host: str
    port: int
    backend: str = DEFAULT_BACKEND
    id: str | None = None
    conf: tuple[tuple[str, str], ...] = ()

    def to_env(self) -> dict[str, str]:
        """Return the variables that torchrun reads as --rdzv-endpoint and --rdzv-backend."""
        return {PET_RDZV_ENDPOINT: f"{self.host}:{self.port}", PET_RDZV_BACKEND: self.backend}

    def late_env(self) -> dict[str, str]:
        """Return the optional variables, which v1 puts behind PET_MAX_RESTARTS."""
        env = {PET_RDZV_ID: self.id} if self.id else {}
        if self.conf:
            env[PET_RDZV_CONF] = ",".join(f"{key}={value}" for key, value in self.conf)
        return env

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Read what `to_env` and `late_env` wrote; None without an endpoint."""
        endpoint = env.get(PET_RDZV_ENDPOINT)
        if not endpoint:
            return None
        host, colon, port = endpoint.rpartition(":")
        return cls(
            host=host if colon else endpoint,
            port=whole_number(PET_RDZV_ENDPOINT, port, "host:port", most=65535) if colon else DEFAULT_RDZV_PORT,
            backend=env.get(PET_RDZV_BACKEND) or DEFAULT_BACKEND,
            id=env.get(PET_RDZV_ID) or None,
            conf=rdzv_conf(env.get(PET_RDZV_CONF, "")),
        )


@dataclass(frozen=True, slots=True)
class ReplicaEnv:
    """Everything the operator sets for one replica, as v1 does; ranks and sizes count pods, not processes.

    The four fields of the master are set together or not at all; v1 writes none of them for a job without a Master.
    """

    nnodes_min: int
    nnodes_max: int
    nproc_per_node: str | None = None
    master_addr: str | None = None
    master_port: int | None = None
    world_size: int | None = None
    rank: int | None = None
    rdzv: RendezvousOptions | None = None
    max_restarts: int | None = None
    standalone: bool = False
    separate_stores: bool = False

    def __post_init__(self) -> None:
        """Refuse half a master: torch would wait for the missing address or rank forever."""
        master = (self.master_addr, self.master_port, self.world_size, self.rank)
        if any(part is None for part in master) and any(part is not None for part in master):
            raise ContractError(
                f"master_addr, master_port, world_size, rank = {master}: set all four, or none of them (no Master)"
            )

    @property
    def elastic(self) -> bool:
        """Whether replicas may come and go: then torchrun needs a range of nodes and a rendezvous."""
        return self.rdzv is not None or self.nnodes_min != self.nnodes_max

    @property
    def nnodes(self) -> str:
        """Return torchrun's --nnodes: `2`, or the range `1:3` of an elastic job (`2:2` too, as v1 writes it)."""
        return f"{self.nnodes_min}:{self.nnodes_max}" if self.elastic else str(self.nnodes_max)

    def to_env(self) -> dict[str, str]:
        """Return the variables in v1's order."""
        env = {PYTHONUNBUFFERED: "1"} | self._master_env()
        if self.nproc_per_node is not None:
            env[PET_NPROC_PER_NODE] = self.nproc_per_node
        env |= self.rdzv.to_env() if self.rdzv else {}
        env[PET_NNODES] = self.nnodes
        if self.max_restarts is not None:
            env[PET_MAX_RESTARTS] = str(self.max_restarts)
        env |= self.rdzv.late_env() if self.rdzv else {}
        # v1 writes an empty value here, which torchrun's int() refuses: the field never worked there.
        env |= {PET_STANDALONE: "1"} if self.standalone else {}
        return env | ({SEPARATE_STORES: "1"} if self.separate_stores else {})

    def _master_env(self) -> dict[str, str]:
        if self.master_addr is None:
            return {}
        port, rank = str(self.master_port), str(self.rank)
        return {
            MASTER_PORT: port,
            PET_MASTER_PORT: port,
            MASTER_ADDR: self.master_addr,
            PET_MASTER_ADDR: self.master_addr,
            WORLD_SIZE: str(self.world_size),
            RANK: rank,
            PET_NODE_RANK: rank,
        }

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read what `to_env` wrote; the user's own variables are ignored where no job is described."""
        low, high = _nnodes(env.get(PET_NNODES) or "1")
        here = cls(
            nnodes_min=low,
            nnodes_max=high,
            nproc_per_node=env.get(PET_NPROC_PER_NODE),
            rdzv=RendezvousOptions.from_env(env),
            max_restarts=optional_number(env, PET_MAX_RESTARTS),
            standalone=switch(env, PET_STANDALONE),
            separate_stores=env.get(SEPARATE_STORES) == "1",
        )
        addr = env.get(MASTER_ADDR)
        if not addr:
            return here
        return replace(
            here,
            master_addr=addr,
            master_port=_required(env, MASTER_PORT, least=1, most=65535),
            world_size=_required(env, WORLD_SIZE, least=1),
            rank=_required(env, RANK, least=0),
        )


def _required(env: Mapping[str, str], name: str, *, least: int, most: int = 2**31 - 1) -> int:
    if name not in env:
        raise ContractError(f"{name} is missing: {MASTER_ADDR} is set, so {name} must be set too")
    return whole_number(name, env[name], least=least, most=most)


def _nnodes(text: str) -> tuple[int, int]:
    first, colon, second = text.partition(":")
    low = whole_number(PET_NNODES, first, "N or MIN:MAX", least=1)
    high = whole_number(PET_NNODES, second, "N or MIN:MAX", least=1) if colon else low
    if low > high:
        raise ContractError(f"{PET_NNODES}: {text!r} has its minimum above its maximum: expected MIN:MAX")
    return low, high


def rdzv_conf(text: str) -> tuple[tuple[str, str], ...]:
    """Return the settings of a `key=value,key=value`; raises ContractError for anything else."""
    pairs = tuple(part.partition("=") for part in text.split(",")) if text else ()
    for key, equals, _ in pairs:
        if not key or not equals:
            raise ContractError(f"{PET_RDZV_CONF}: {text[:80]!r} is not key=value,key=value")
    return tuple((key, value) for key, _, value in pairs)
