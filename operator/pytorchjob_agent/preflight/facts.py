"""The facts about one member that the checks use. Pure: `read_facts` reads them, tests make them up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Torch:
    """The image's torch and the accelerators that it sees; without a `version` it cannot be imported."""

    version: str | None = None
    problem: str = ""  # why it cannot be imported, or why it cannot count devices
    cuda: str | None = None
    nccl: str | None = None
    kind: str | None = None  # cuda (also for ROCm), xpu, ...; None: a build for CPUs
    visible: int = 0


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The container's limits; None is unlimited, for `shm` missing."""

    shm: int | None = None
    nofile: int | None = None
    memlock: int | None = None
    core: int | None = None
    cores: int = 1
    cpus: float | None = None  # the limit of the cgroup
    memory: int | None = None
    infiniband: bool = False
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequiredPath:
    """A file or folder that has to be writable, with the variable or the use that names it."""

    name: str
    path: str
    writable: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The rendezvous endpoint; `problem` is empty if it answers."""

    host: str
    port: int
    ours: bool = False  # whether this member opens it
    problem: str = ""
    resolves: bool = True


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The requested run: torchrun's --nproc-per-node, the largest number of pods, and whether it has an endpoint."""

    nproc: str = "1"
    nodes: int = 1
    addressed: bool = True

    @classmethod
    def of(cls, nproc: str, nnodes: str, addressed: bool) -> Self:
        """Read torchrun's options; torchrun, or the contract, refuses a broken range."""
        most = nnodes.rpartition(":")[2]
        return cls(nproc, int(most[:9]) if most.isascii() and most.isdigit() else 1, addressed)


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about one member."""

    request: RunRequest = RunRequest()
    env: Mapping[str, str] = field(default_factory=dict)
    contract: str = ""  # the error in the operator's variables, if any
    torch: Torch = Torch()
    machine: ContainerLimits = ContainerLimits()
    places: tuple[RequiredPath, ...] = ()
    endpoint: Endpoint | None = None
    python: str = ""
    clock: str = ""

    @property
    def nproc(self) -> int | None:
        """Return how many processes torchrun would start; None if only torch's plugins know."""
        asked, seen = self.request.nproc, self.torch.visible
        if asked.isascii() and asked.isdigit():
            return int(asked[:9])
        if asked == "auto":
            return seen or self.machine.cores
        if asked == "cpu":
            return self.machine.cores
        if asked == "gpu" or asked == self.torch.kind:
            return seen
        return None
