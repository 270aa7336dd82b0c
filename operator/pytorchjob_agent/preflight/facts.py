"""What the checks may look at, of one member, at one moment. Pure: read by `read`, made up in tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Torch:
    """The image's torch and the accelerators that it sees; `version` is None where it cannot be imported."""

    version: str | None = None
    problem: str = ""  # why it cannot be imported, or why it cannot count devices
    cuda: str | None = None
    nccl: str | None = None
    kind: str | None = None  # cuda (ROCm's too), xpu, ...; None: a build for CPUs
    visible: int = 0


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What the container gives; None is unlimited, for shm: not there."""

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
    """A file or folder that has to be writable, by the variable or the use that names it."""

    name: str
    path: str
    writable: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the members meet; `problem` is empty when it answers."""

    host: str
    port: int
    ours: bool = False  # this member opens it
    problem: str = ""
    resolves: bool = True


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is to be run: torchrun's --nproc-per-node, the most pods, and whether a place to meet is named."""

    nproc: str = "1"
    nodes: int = 1
    addressed: bool = True

    @classmethod
    def of(cls, nproc: str, nnodes: str, addressed: bool) -> Self:
        """Take torchrun's words; a broken range is for torchrun, or the contract, to refuse."""
        most = nnodes.rpartition(":")[2]
        return cls(nproc, int(most[:9]) if most.isascii() and most.isdigit() else 1, addressed)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything together."""

    request: RunRequest = RunRequest()
    env: Mapping[str, str] = field(default_factory=dict)
    contract: str = ""  # what is wrong with the operator's variables
    torch: Torch = Torch()
    machine: ContainerLimits = ContainerLimits()
    places: tuple[RequiredPath, ...] = ()
    meeting: Endpoint | None = None
    python: str = ""
    clock: str = ""

    @property
    def nproc(self) -> int | None:
        """How many processes torchrun would start; None where only torch's plugins know."""
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
