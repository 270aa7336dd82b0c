"""What the operator and the agent agree on: a replica's environment, exit codes, the termination message.

Both sides use this one file: the operator writes with `to_env` and reads `TerminationMessage.from_json`,
the agent does the reverse. Pure: it reads no environment, clock or file itself.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any, Self

from pytorchjob_agent.contract.member import (
    MemberReport as MemberReport,  # both sides' too; a file of its own for its size
)

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

# Read by the agent alone; nobody has to set them.
TERMINATION_LOG = "PYTORCHJOB_TERMINATION_LOG"
GRACE = "PYTORCHJOB_GRACE_SECONDS"
PREFLIGHT = "PYTORCHJOB_PREFLIGHT"  # warn, fail or off; with _<CHECK> behind it for one check

DEFAULT_BACKEND = "c10d"
DEFAULT_RDZV_PORT = 29400  # torchrun's own, when an endpoint names no port
TERMINATION_LOG_PATH = "/dev/termination-log"
DEFAULT_GRACE = 25.0  # below Kubernetes' default grace of 30 s, so that the agent still says why it goes
TERMINATION_LIMIT = 4096  # the kubelet cuts behind it, which would leave broken JSON


class ContractError(ValueError):
    """A variable or a message that the other side would not have written; says which and what would be right."""


class ExitCode(IntEnum):
    """The agent's own exit codes; a failed worker's code (1-127, or 128 + its signal) is passed on as it is."""

    OK = 0
    WORKER_FAILED = 1  # a worker failed and left no code of its own
    USAGE = 2  # the command line is wrong (argparse's code)
    SETUP = 78  # the image or the environment is wrong: no torch, a broken variable
    INTERRUPTED = 130
    DRAINED = 143  # SIGTERM: the pod was asked to go and went
    PREFLIGHT = 200  # this node is not fit: try another one
    RENDEZVOUS = 201  # the others were not reached in time: try again
    FENCED = 202  # a newer incarnation took this place
    DO_NOT_RESTART = 203


class Reason(StrEnum):
    """The one word of a termination message."""

    WORKER_FAILED = "WorkerFailed"
    WORKER_HANGS = "WorkerHangs"
    DRAINED = "Drained"
    RENDEZVOUS_FAILED = "RendezvousFailed"
    BAD_SETUP = "BadSetup"
    BAD_USAGE = "BadUsage"
    PREFLIGHT_FAILED = "PreflightFailed"
    AGENT_FAILED = "AgentFailed"
    FENCED = "Fenced"


def exit_code_of(returncode: int) -> int:
    """Return the exit code that a shell would report for a process' return code: -9 becomes 137."""
    return 128 - returncode if returncode < 0 else returncode


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the replicas of an elastic job meet: torchrun's --rdzv-* options."""

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
            port=_number(PET_RDZV_ENDPOINT, port, "host:port", most=65535) if colon else DEFAULT_RDZV_PORT,
            backend=env.get(PET_RDZV_BACKEND) or DEFAULT_BACKEND,
            id=env.get(PET_RDZV_ID) or None,
            conf=rdzv_conf(env.get(PET_RDZV_CONF, "")),
        )


@dataclass(frozen=True, slots=True)
class ReplicaEnv:
    """Everything the operator tells one replica, as v1 does; ranks and sizes are those of pods, not processes.

    The four fields of the master are set together or not at all; v1 writes none of them for a job without a Master.
    """

    nnodes_min: int
    nnodes_max: int
    nproc_per_node: str | None = None
    master_addr: str | None = None
    master_port: int | None = None
    world_size: int | None = None
    rank: int | None = None
    rdzv: Rendezvous | None = None
    max_restarts: int | None = None
    standalone: bool = False
    separate_stores: bool = False

    def __post_init__(self) -> None:
        """Refuse half a master: torch would wait for an address or a rank that nobody gives it."""
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
        """Read what `to_env` wrote; variables of a user's own that say nothing about a job are left alone."""
        low, high = _nnodes(env.get(PET_NNODES) or "1")
        here = cls(
            nnodes_min=low,
            nnodes_max=high,
            nproc_per_node=env.get(PET_NPROC_PER_NODE),
            rdzv=Rendezvous.from_env(env),
            max_restarts=_optional(env, PET_MAX_RESTARTS),
            standalone=_flag(env, PET_STANDALONE),
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


def _number(name: str, text: str, form: str, *, least: int = 0, most: int = 2**31 - 1) -> int:
    """Return a whole number of plain digits within bounds, or an error that names the variable."""
    if text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most:
        return int(text)
    raise ContractError(f"{name}: {text[:80]!r} is not {form}: expected a whole number from {least} to {most}")


def _required(env: Mapping[str, str], name: str, *, least: int, most: int = 2**31 - 1) -> int:
    if name not in env:
        raise ContractError(f"{name} is missing: {MASTER_ADDR} is set, so {name} must be set too")
    return _number(name, env[name], "a number", least=least, most=most)


def _optional(env: Mapping[str, str], name: str) -> int | None:
    return _number(name, env[name], "a number") if env.get(name) else None


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """Return a whole number of seconds out of the environment, or the default."""
    return float(_number(name, env[name], "a time in seconds")) if env.get(name) else default


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name) or "0"
    if text not in {"0", "1"}:
        raise ContractError(f"{name}: {text[:80]!r} is not a switch: expected 1 or 0")
    return text == "1"


def _nnodes(text: str) -> tuple[int, int]:
    first, colon, second = text.partition(":")
    low = _number(PET_NNODES, first, "N or MIN:MAX", least=1)
    high = _number(PET_NNODES, second, "N or MIN:MAX", least=1) if colon else low
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


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """Why the agent ended, as it stands in the pod's status: the first failure, and who fell after it."""

    reason: str
    exit_code: int
    rank: int | None = None
    local_rank: int | None = None
    message: str = ""
    traceback: str = ""
    failed_after: tuple[int, ...] = ()
    version: int = 1

    def to_json(self) -> str:
        """Return JSON of at most 4096 bytes: the head of a long traceback goes first, then the message's end."""
        fitting = self._capped()
        while len(text := fitting._dumps()) > TERMINATION_LIMIT:
            fitting = fitting._shorter()
        return text.decode()

    def _dumps(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _capped(self) -> Self:
        """Drop what cannot fit in any case, so that the loop is short for a traceback of megabytes too."""
        tail, head = slice(-TERMINATION_LIMIT, None), slice(TERMINATION_LIMIT)
        return replace(
            self,
            reason=self.reason[:256],
            message=self.message[head],
            traceback=self.traceback[tail],
            failed_after=self.failed_after[:1024],
        )

    def _shorter(self) -> Self:
        """Give up an eighth of the least important text there is; whoever calls repeats it until it fits."""
        if len(self.traceback) > 64:
            return replace(self, traceback=self.traceback[len(self.traceback) // 8 :])
        if len(self.failed_after) > 8:
            return replace(self, failed_after=self.failed_after[: len(self.failed_after) // 2])
        if len(self.message) > 64:
            return replace(self, message=self.message[: -(len(self.message) // 8)])
        return replace(self, reason=self.reason[:64], traceback="")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; fields that a newer agent adds are left alone."""
        try:
            data = json.loads(text[: 4 * TERMINATION_LIMIT])
        except ValueError as error:
            raise ContractError(f"termination message: {text[:80]!r} is not JSON: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("version"), int):
            raise ContractError(f"termination message: {text[:80]!r} is not an object with a number `version`")
        return cls(
            reason=_text(data, "reason"),
            exit_code=_int(data, "exit_code") or 0,
            rank=_int(data, "rank"),
            local_rank=_int(data, "local_rank"),
            message=_text(data, "message"),
            traceback=_text(data, "traceback"),
            failed_after=_ints(data, "failed_after"),
            version=data["version"],
        )


def _wrong(name: str, value: object, expected: str) -> ContractError:
    return ContractError(f"termination message: {name}: {str(value)[:80]!r} is not {expected}")


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise _wrong(name, value, "a string")
    return value


def _int(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and not isinstance(value, int):
        raise _wrong(name, value, "a number")
    return value


def _ints(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = data.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise _wrong(name, value, "a list of numbers")
    return tuple(value)
