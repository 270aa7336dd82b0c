"""The table of failures: a script, how it is started, and what people have to read: who failed, where, what comes next.

In a script `# here` marks the line that has to be named, and `# fails` one that fails and may not be named. The
harness notes the time in front of such a line. `{port}` is a port that another process has.
"""

from enum import StrEnum
from typing import NamedTuple


class Launcher(StrEnum):
    """How a job's two ranks are started."""

    PYTHON = "python"
    """A Master and a Worker, each with one process."""
    WORKERS = "python, workers"
    """Two Workers, each with one process."""
    TORCHRUN = "torchrun"
    """One Worker with two processes, without the agent."""
    AGENT = "agent"
    """The same with the agent."""
    AGENTS = "agents"
    """Two Workers with one process each, with the agent."""
    INJECTED = "torchrun, injected"
    """Two Workers whose torchrun gets the agent at its start."""
    STANDALONE = "standalone"
    """`run_standalone` with two processes, without a job."""


class Case(NamedTuple):
    """A failure."""

    what: str
    launcher: Launcher
    script: str
    who: str
    """The rank or the replica that has to be named, and no other."""
    says: str
    """Words of the error."""
    then: str
    """Words of the next step."""
    torch: bool = True
    """False if no process imports torch: then it takes a second."""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.what}, {self.launcher}"


L = Launcher
GROUP = 'import os, sys, torch, torch.distributed as dist\ndist.init_process_group("gloo")\nrank = dist.get_rank()\n'
TRAIN = "for step in range(1000):\n    dist.all_reduce(torch.ones(1))\n"
PLAIN = 'import os, sys, time\nrank = int(os.environ["RANK"])\n'
CORRECT = "correct train.py, line"


def on(rank: int, code: str, before: str = GROUP) -> str:
    """Return a script of which one rank fails at its third step."""
    body = "".join(f"        {line}\n" for line in code.splitlines())
    wait = TRAIN.splitlines()[1] if before == GROUP else "    time.sleep(0.2)"
    return f"{before}for step in range(1000):\n    if step == 3 and rank == {rank}:\n{body}{wait}\n"


def each(what: str, launchers: tuple[L, ...], script: str, rank: int | None, says: str, then: str) -> list[Case]:
    """Return a case for each launcher; no rank: all of them fail by themselves."""
    return [Case(what, launcher, script, who(launcher, rank), says, then) for launcher in launchers]


def who(launcher: L, rank: int | None) -> str:
    """Return how a rank is named."""
    if rank is None:
        return ""
    if launcher is L.PYTHON:
        return ("master-0", "worker-0")[rank]
    return f"worker-{rank}" if launcher is L.WORKERS else f"rank {rank}"


def plain(what: str, launcher: L, script: str, named: str, says: str, then: str) -> Case:
    """Return a case without torch in the script."""
    return Case(what, launcher, script, named, says, then, torch=launcher not in (L.PYTHON, L.WORKERS))


RAISE = 'raise ValueError("no data")  # here'
SLOWLY = f"import atexit, time; atexit.register(time.sleep, 5); atexit.register(dist.destroy_process_group)\n{RAISE}"
KILL = "os.kill(os.getpid(), 9)  # fails"
SEGFAULT = "import ctypes\nctypes.string_at(0)  # here"
LOADER = """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        FAIL
for batch in torch.utils.data.DataLoader(Data(), num_workers=1) if rank == 1 else ():
    pass
"""
LOADS = LOADER.replace("FAIL", 'raise KeyError("label")  # here')
DIES = LOADER.replace("FAIL", "os.kill(os.getpid(), 9)  # fails")
EARLY = f"{GROUP}for step in range(10):\n    dist.all_reduce(torch.ones(1))\n    if step == 2 and rank == 0:\n        "
BREAKS = f"{EARLY}break  # fails\n"
EXITS = f"{EARLY}sys.exit()  # fails\n"
DESTROYS = f"{EARLY}dist.destroy_process_group(); break  # fails\n"
BACKWARD = "loss = torch.ones(1)\nloss.backward()  # here"
SHAPES = "torch.ones(2, 3) @ torch.ones(2, 3)  # here"
NCCL = 'import torch.distributed as dist\ndist.init_process_group("nccl")  # here\n'
CUDA = "import torch\ntorch.ones(1).cuda()  # here\n"
PORT = """
import torch.distributed as dist
dist.init_process_group("gloo", "tcp://127.0.0.1:{port}", rank=0, world_size=2)  # here
"""
ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", required=True)
parser.parse_args()  # fails
"""
SYNTAX = "import os\nprint('a'  # here\n"
MISSING = "import os\nimport tqdmm  # here\n"
CHAIN = """
try:
    open("/data/none")  # fails
except OSError as error:
    raise RuntimeError("no dataset") from error  # here"""
FULL = 'with open("/dev/full", "w") as file:\n    file.write("x" * 10**6)  # here'
DATASET = 'open("/data/imagenet/train.csv")  # here'
LOAD = 'torch.load("/data/last.pt")  # here'

OFTEN = {
    "rank 0 raises, agents",
    "rank 0 ends early, agent",
    "rank 0 ends early, torchrun",
    "rank 1 crashes in C, torchrun",
    "rank 1 exits with 3, agent",
    "a port is in use, python",
    "a DataLoader's worker is killed on rank 1, agents",
}
"""The cases with torch that each run of the tests has."""
CASES: tuple[Case, ...] = (
    *each("rank 0 raises", (L.AGENTS, L.PYTHON, L.TORCHRUN, L.AGENT, L.INJECTED, L.STANDALONE), on(0, RAISE), 0,
          "ValueError: no data", CORRECT),
    *each("rank 1 raises", (L.TORCHRUN, L.PYTHON, L.AGENT, L.AGENTS, L.INJECTED, L.STANDALONE), on(1, RAISE), 1,
          "ValueError: no data", CORRECT),
    *each("rank 1 raises and ends slowly", (L.AGENTS, L.INJECTED, L.PYTHON, L.TORCHRUN, L.AGENT), on(1, SLOWLY), 1,
          "ValueError: no data", CORRECT),
    *each("rank 0 ends early", (L.AGENT, L.TORCHRUN, L.AGENTS, L.WORKERS, L.STANDALONE), BREAKS, 0,
          "ended with success while", "same number"),
    *each("rank 0 calls sys.exit() early", (L.AGENTS, L.TORCHRUN), EXITS, 0, "ended with success while", "same number"),
    *each("rank 0 leaves the group early", (L.AGENT,), DESTROYS, 0, "ended with success while", "same number"),
    *each("rank 1 is killed", (L.AGENT, L.PYTHON, L.TORCHRUN, L.AGENTS), on(1, KILL), 1, "SIGKILL", "memory ran out"),
    *each("rank 0 is killed", (L.AGENTS, L.TORCHRUN), on(0, KILL), 0, "SIGKILL", "memory ran out"),
    *each("rank 1 crashes in C", (L.TORCHRUN, L.PYTHON, L.AGENT), on(1, SEGFAULT), 1, "SIGSEGV", CORRECT),
    *each("rank 1 has no memory", (L.AGENTS, L.PYTHON), on(1, "raise MemoryError  # here"), 1, "MemoryError",
          "memory ran out"),
    *each("rank 1 exits with 3", (L.AGENT, L.TORCHRUN, L.PYTHON), on(1, "sys.exit(3)  # fails"), 1, "3", ""),
    *each("rank 1 aborts", (L.AGENTS,), on(1, "os.abort()  # here"), 1, "SIGABRT", CORRECT),
    *each("NCCL without a GPU", (L.PYTHON, L.TORCHRUN, L.AGENT), NCCL, None, "CUDA", "use gloo"),
    *each("a GPU is missing", (L.AGENT,), CUDA, None, "NVIDIA", "no GPU here"),
    *each("a port is in use", (L.PYTHON, L.AGENT), PORT, None, "EADDRINUSE", "MASTER_PORT"),
    *each("a dataset is missing on rank 1", (L.AGENTS, L.TORCHRUN), on(1, DATASET), 1, "/data/imagenet", CORRECT),
    *each("a checkpoint is missing on rank 0", (L.AGENT, L.TORCHRUN), on(0, LOAD), 0, "/data/last.pt", CORRECT),
    *each("a chain of errors on rank 1", (L.AGENTS,), on(1, CHAIN), 1, "RuntimeError: no dataset", CORRECT),
    *each("a DataLoader's worker raises on rank 1", (L.AGENT, L.TORCHRUN), GROUP + LOADS + TRAIN, 1, "KeyError",
          CORRECT),
    *each("a DataLoader's worker is killed on rank 1", (L.AGENTS, L.TORCHRUN), GROUP + DIES + TRAIN, 1, "DataLoader",
          ""),
    *each("a backward fails on rank 1", (L.AGENTS, L.TORCHRUN), on(1, BACKWARD), 1, "does not require grad", CORRECT),
    *each("shapes do not fit on rank 0", (L.AGENT,), on(0, SHAPES), 0, "mat1 and mat2", CORRECT),
    plain("the disk is full on rank 1", L.PYTHON, on(1, FULL, PLAIN), "worker-0", "No space left", CORRECT),
    plain("a module is missing", L.PYTHON, MISSING, "", "tqdmm", "install tqdmm"),
    plain("a module is missing", L.TORCHRUN, MISSING, "", "tqdmm", "install tqdmm"),
    plain("a module is missing", L.AGENT, MISSING, "", "tqdmm", "install tqdmm"),
    plain("a script has a wrong syntax", L.PYTHON, SYNTAX, "", "SyntaxError: '('", CORRECT),
    plain("a script has a wrong syntax", L.AGENT, SYNTAX, "", "SyntaxError: '('", CORRECT),
    plain("an argument is missing", L.PYTHON, ARGUMENTS, "", "--lr", "arguments"),
    plain("an argument is missing", L.TORCHRUN, ARGUMENTS, "", "--lr", "arguments"),
    plain("an argument is missing", L.AGENT, ARGUMENTS, "", "--lr", "arguments"),
    plain("a script is missing", L.PYTHON, "", "", "train.py", "there is no"),
    plain("a script is missing", L.TORCHRUN, "", "", "train.py", "there is no"),
    plain("a script is missing", L.AGENT, "", "", "train.py", "there is no"),
    plain("a variable is missing", L.PYTHON, 'import os\nos.environ["HF_TOKEN"]  # here\n', "", "HF_TOKEN", CORRECT),
)  # fmt: skip
