"""What becomes of torchrun's flags: honoured, decided elsewhere, or refused; docs/torchrun.md has the same table.

Pure: parsed arguments and variables in, sentences out. A member of a job with a coordinator trains in the coordinator's
rounds, so the job's fields decide what torchrun's flags decide in a run of its own. A flag that agrees with the job is
accepted silently, because v1's scripts pass the job's variables on as flags.
"""

import argparse
from collections.abc import Iterator, Mapping
from enum import StrEnum

from pytorchjob_agent.contract.environment import (
    GRACE,
    MASTER_ADDR,
    MASTER_PORT,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_MAX_RESTARTS,
    PET_NNODES,
    PET_NODE_RANK,
    PET_RDZV_CONF,
    PET_RDZV_ID,
    RANK,
)
from pytorchjob_agent.contract.reading import ContractError

_MOST_PORTS = 65535
_STATIC = "static"
JOIN_TIMEOUT = "join_timeout"


class UsageError(ContractError):
    """A command line that cannot work; the message names the flag, what is wrong with it, and what to do."""


class Effect(StrEnum):
    """What a flag does."""

    HONOURED = "honoured"
    """As in torchrun."""
    DECIDED = "decided elsewhere"
    """Another value decides. A differing flag is named in the log, and refused if it contradicts the job."""
    REFUSED = "refused"
    """A value that does not fit the run is refused."""


MEMBER: Mapping[str, Effect] = {
    "nnodes": Effect.DECIDED,
    "rdzv_id": Effect.DECIDED,
    "rdzv_conf": Effect.DECIDED,
    "max_restarts": Effect.DECIDED,
    "monitor_interval": Effect.DECIDED,
    "node_rank": Effect.DECIDED,
    "master_addr": Effect.DECIDED,
    "master_port": Effect.DECIDED,
    "signals_to_handle": Effect.DECIDED,
    "shutdown_timeout": Effect.DECIDED,
}
"""The flags that a member of a coordinator's rounds does not honour, by the parser's name."""
STANDALONE: Mapping[str, Effect] = {
    "nnodes": Effect.REFUSED,
    "rdzv_backend": Effect.DECIDED,
    "rdzv_endpoint": Effect.DECIDED,
    "rdzv_id": Effect.DECIDED,
    "node_rank": Effect.DECIDED,
    "master_addr": Effect.DECIDED,
    "signals_to_handle": Effect.DECIDED,
}
"""The flags that a standalone run does not honour; torchrun's own --standalone ignores them too."""

_SIGNALS = "the agent handles SIGTERM, SIGINT, SIGHUP and SIGQUIT"
_DECIDER = {
    "rdzv_id": "the rendezvous has the job's uid as its id",
    "rdzv_conf": "elasticPolicy.rdzvConf decides, except join_timeout",
    "monitor_interval": "the agent notices the end of a worker at once",
    "node_rank": "each round assigns the ranks",
    "master_addr": "each round has its own master",
    "master_port": "each round has its own port",
    "signals_to_handle": _SIGNALS,
    "shutdown_timeout": f"{GRACE} decides, from terminationGracePeriodSeconds",
}
_SAME_AS = {
    "rdzv_id": (PET_RDZV_ID,),
    "rdzv_conf": (PET_RDZV_CONF,),
    "node_rank": (PET_NODE_RANK, RANK),
    "master_addr": (PET_MASTER_ADDR, MASTER_ADDR),
    "master_port": (PET_MASTER_PORT, MASTER_PORT),
}
"""Variables of the job that a script may pass on as a flag."""


def check(args: argparse.Namespace) -> None:
    """Raise UsageError for values with which torch would raise a bare traceback, or wait for ever."""
    if args.master_port is not None and not 0 <= args.master_port <= _MOST_PORTS:
        raise UsageError(f"--master-port={args.master_port}: expected a port from 0 to {_MOST_PORTS}")
    if args.max_restarts < 0:
        raise UsageError(f"--max-restarts={args.max_restarts}: expected 0 or more restarts")
    if args.node_rank < 0:
        raise UsageError(f"--node-rank={args.node_rank}: expected 0 or more")
    if not args.monitor_interval > 0:
        raise UsageError(f"--monitor-interval={args.monitor_interval:g}: expected a number of seconds above 0")
    count = args.nproc_per_node
    if count.lstrip("-").isdigit() and int(count) < 1:
        raise UsageError(f"--nproc-per-node={count}: expected at least 1, or auto, cpu, gpu, xpu")
    nnodes(args.nnodes)


def check_static(args: argparse.Namespace) -> None:
    """Raise UsageError for a static rendezvous with a range of nodes, which would wait for ever."""
    low, high = nnodes(args.nnodes)
    if args.rdzv_backend == _STATIC and low != high:
        raise UsageError(
            f"--nnodes={args.nnodes}: the rendezvous {_STATIC} has a fixed number of nodes:"
            " give one number, or choose another --rdzv-backend, for example c10d"
        )


def nnodes(text: str) -> tuple[int, int]:
    """Return torchrun's --nnodes as a range; raises UsageError."""
    low, colon, high = text.partition(":")
    numbers = (low, high if colon else low)
    if all(part.isascii() and part.isdigit() and len(part) < 10 for part in numbers):
        least, most = (int(part) for part in numbers)
        if 0 < least <= most:
            return least, most
    raise UsageError(f"--nnodes={text}: expected N or MIN:MAX, with MIN from 1 to MAX")


def overridden(given: Mapping[str, str], env: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each given flag that does not decide in a member of rounds; raises UsageError.

    `given` has the values of the command line by the parser's name, `env` the job's variables.
    """
    if "nnodes" in given:
        yield from _nnodes(given["nnodes"], env.get(PET_NNODES))
    if "max_restarts" in given and given["max_restarts"] != env.get(PET_MAX_RESTARTS):
        decides = env.get(PET_MAX_RESTARTS) or "unset: see restartPolicy and backoffLimit"
        yield _line("max_restarts", given, f"elasticPolicy.maxRestarts decides ({decides})")
    for name, decider in _DECIDER.items():
        if name in given and not _agrees(name, given[name], env):
            yield _line(name, given, decider)


def overridden_standalone(given: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each given flag that a standalone run does not honour."""
    for name, effect in STANDALONE.items():
        if effect is Effect.DECIDED and name in given:
            decider = _SIGNALS if name == "signals_to_handle" else "--standalone decides"
            yield _line(name, given, decider, "run")


def spelling(name: str) -> str:
    """Return the flag for the parser's name."""
    return f"--{name.replace('_', '-')}"


def _nnodes(text: str, of_job: str | None) -> Iterator[str]:
    """Accept the job's own numbers, note a part of its range, refuse others."""
    least, most = nnodes(text)
    if of_job is None:
        return
    low, high = nnodes(of_job)
    if (least, most) == (low, high):
        return
    fields = "the replicas of pytorchReplicaSpecs, or elasticPolicy.minReplicas and maxReplicas"
    if not low <= least <= most <= high:
        raise UsageError(f"--nnodes={text}: the job has {of_job} nodes: remove the flag, or change {fields}")
    yield f"--nnodes={text} has no effect in this job: {fields}, decide ({of_job})"


def _agrees(name: str, value: str, env: Mapping[str, str]) -> bool:
    if name == "rdzv_conf":
        keys = {pair.partition("=")[0].strip() for pair in value.split(",") if pair.strip()}
        if keys <= {JOIN_TIMEOUT}:
            return True
    return any(env.get(variable) == value for variable in _SAME_AS.get(name, ()))


def _line(name: str, given: Mapping[str, str], decider: str, what: str = "job") -> str:
    return f"{spelling(name)}={given[name]} has no effect in this {what}: {decider}"
