"""Trains a small DDP model with gloo; what a fault cost and whether training stayed right can be read from its lines.

The loss of a step depends on the step alone, not on the number of ranks: every step has the same global batch, of which
each rank takes its share, and all arithmetic is in double precision. So each line can be held against `losses()`. If
ranks go on without a lost one, its share is missing, and the lines say which shares are in the loss. With TRAIN_SHARES
none is, and a lost rank comes back between two steps.

environment: TRAIN_SHARES (empty: no), TRAIN_STEPS, TRAIN_STEP_SECONDS, TRAIN_CHECKPOINT_STEPS (how often rank 0 saves),
TRAIN_CHECKPOINTS (a folder, or an address of store.py: http://host:port/name),
TRAIN_SINK (host:port; lines go there too)
"""

import copy
import io
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP's constructor would import it, a second later: so all imports are over before "start"
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from pytorchjob_agent import checkpoint_requested, progress, shares, should_stop, steps
except ImportError:  # an image without the agent, or with one that does not offer them

    def checkpoint_requested() -> bool:
        """No agent asks."""
        return False

    def progress(step: int, total: int | None = None, **metrics: float) -> None:
        """No agent reads it."""

    def should_stop() -> bool:
        """No agent asks."""
        return False

    def steps(numbers: range, *state: Any) -> Iterator[int]:
        """No rank comes back."""
        return iter(numbers)


STEPS = int(os.environ.get("TRAIN_STEPS", "200"))
STEP_SECONDS = float(os.environ.get("TRAIN_STEP_SECONDS", "0.05"))
CHECKPOINT_STEPS = int(os.environ.get("TRAIN_CHECKPOINT_STEPS", "10"))
CHECKPOINTS = os.environ.get("TRAIN_CHECKPOINTS", "")
SINK = os.environ.get("TRAIN_SINK", "")
SHARES = bool(os.environ.get("TRAIN_SHARES"))

BATCH, INPUTS, HIDDEN, RATE = 12, 8, 16, 0.05
PATIENCE_SECONDS = 10.0
MARK = "train "
KEPT = 3


class Lines:
    """One line per event, to stdout and to the sink, which outlives the pod."""

    def __init__(self) -> None:
        self._common: dict[str, Any] = {"pod": socket.gethostname()}
        self.came_back = False
        """Whether this rank has come into a group that trains, and has not said so."""
        host, _, port = SINK.rpartition(":")
        self._sink = socket.create_connection((host, int(port)), PATIENCE_SECONDS) if host else None

    def always(self, **fields: Any) -> None:
        """Say these in every line from now on."""
        self._common |= fields

    def state_dict(self) -> dict[str, Any]:
        """Return the name of the group, for a rank that comes into it."""
        return {"group": self._common["group"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the name of the group that this rank has come into."""
        self.always(**state)
        self.came_back = True

    def say(self, event: str, **fields: Any) -> None:
        """Tell an event, with the time of the host's clock in seconds."""
        told = {"event": event, "time": f"{time.time():.6f}", **self._common, **fields}
        line = MARK + " ".join(f"{key}={value}" for key, value in told.items())
        print(line, flush=True)
        if self._sink:
            self._sink.sendall(line.encode() + b"\n")


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the global batch of a step, counted from 1."""
    random = torch.Generator().manual_seed(step)
    given = torch.randn(BATCH, INPUTS, dtype=torch.float64, generator=random)
    return given, given.sum(1, keepdim=True).sin()


def model() -> nn.Module:
    """Return the model as it is before the first step."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).double()


def errors(net: nn.Module, step: int, rank: int, world: int) -> torch.Tensor:
    """Return this rank's part of the loss of a step; the parts of all ranks add up to it."""
    given, wanted = (part[rank::world] for part in batch(step))
    return (net(given) - wanted).square().sum() / BATCH


def part(net: nn.Module, step: int, marks: str) -> torch.Tensor:
    """Return the part of a step's loss that these shares have: a digit 0 or 1 for each."""
    return torch.stack([errors(net, step, share, len(marks)) for share, mark in enumerate(marks) if mark == "1"]).sum()


def trained(net: nn.Module, step: int, marks: str) -> nn.Module:
    """Return the model after a step with the gradients of these shares, averaged over them."""
    after = copy.deepcopy(net)
    optimizer = torch.optim.SGD(after.parameters(), RATE)
    optimizer.zero_grad()
    (part(after, step, marks) * len(marks) / marks.count("1")).backward()
    optimizer.step()
    return after


def losses() -> Iterator[float]:
    """Yield the loss of each step, from step 1 on, as one process without any fault sees it."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    step = 0
    while True:
        step += 1
        optimizer.zero_grad()
        loss = errors(net, step, 0, 1)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()


def save(net: nn.Module, step: int) -> None:
    """Keep the model as it is after a step, in one move: a process may be killed at any moment."""
    if not CHECKPOINTS:
        return
    content = io.BytesIO()
    torch.save({"step": step, "model": net.state_dict()}, content)
    if CHECKPOINTS.startswith("http:"):
        request = urllib.request.Request(f"{CHECKPOINTS}/{step}", content.getvalue(), method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
    else:
        keep(Path(CHECKPOINTS), step, content.getvalue())


def keep(folder: Path, step: int, content: bytes) -> None:
    """Write a checkpoint durably, and remove all but the newest few."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{step}.part"
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / str(step))
    for old in saved(folder)[:-KEPT]:
        (folder / str(old)).unlink(missing_ok=True)


def saved(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, the newest last."""
    return sorted(int(path.name) for path in folder.glob("*") if re.fullmatch(r"\d+", path.name))


def newest() -> bytes | None:
    """Return the newest checkpoint, if there is one."""
    if CHECKPOINTS.startswith("http:"):
        try:
            with urllib.request.urlopen(CHECKPOINTS, timeout=PATIENCE_SECONDS) as reply:
                content: bytes = reply.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
    steps = saved(Path(CHECKPOINTS)) if CHECKPOINTS else []
    return (Path(CHECKPOINTS) / str(steps[-1])).read_bytes() if steps else None


def load(net: nn.Module) -> int:
    """Put the newest checkpoint into the model, and return its step."""
    content = newest()
    if content is None:
        return 0
    state = torch.load(io.BytesIO(content), weights_only=True)
    net.load_state_dict(state["model"])
    return int(state["step"])


def agree(rank: int, net: nn.Module) -> tuple[int, int]:
    """Return a name that this group of processes alone has, and the step that it goes on from.

    Both are 0 at a rank that prepares to come into a group that trains.
    """
    told = torch.zeros(2, dtype=torch.int64)
    if rank == 0:
        told = torch.tensor([time.time_ns(), load(net)])
    dist.broadcast(told, src=0)
    return int(told[0]), int(told[1])


def train(lines: Lines, net: nn.Module, first: int, rank: int, world: int) -> None:
    """Step until the last, or until somebody asks all to stop."""
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(parallel.parameters(), RATE)
    numbers: Iterable[int] = range(first + 1, STEPS + 1)
    if SHARES:
        numbers = steps(range(first + 1, STEPS + 1), parallel, optimizer, lines)
    for step in numbers:
        if lines.came_back:
            lines.say("back", from_step=step - 1, pid=os.getpid())
            lines.came_back = False
        optimizer.zero_grad()
        found = torch.zeros(1 + 2 * world, dtype=torch.float64)  # the loss, the shares in it, the ranks
        found[1 + world + rank] = 1.0
        for share in shares(parallel) if SHARES else (rank,):
            part = errors(parallel, step, share, world)
            (part * world).backward()  # DDP takes the mean over the ranks
            found[0] += part.detach()
            found[1 + share] += 1.0
        optimizer.step()
        dist.all_reduce(found)
        loss, marks = found[0].item(), "".join(f"{mark:.0f}" for mark in found[1:].tolist())
        time.sleep(STEP_SECONDS)
        lines.say("step", step=step, loss=f"{loss:.12e}", shares=marks[:world], ranks=marks[world:])
        progress(step, STEPS, loss=loss)
        asked = checkpoint_requested()
        if rank == 0 and (asked or step % CHECKPOINT_STEPS == 0 or step == STEPS):
            save(net, step)
            lines.say("saved", step=step)
        if should_stop():
            lines.say("stopped", step=step)
            return
    lines.say("done", step=STEPS)


def started(process: str) -> str:
    """Return when a process of this pod started, by the host's clock in seconds."""
    ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = float(Path("/proc/uptime").read_text().split()[0])
    return f"{time.time() - since_boot + ticks / os.sysconf('SC_CLK_TCK'):.3f}"


def main() -> None:
    """Meet the others, go on from the checkpoint, train."""
    lines = Lines()
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    lines.say("start", pid=os.getpid(), began=started("self"), pod_started=started("1"), restarts=restarts)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = model()
    group, first = agree(rank, net)
    lines.always(rank=rank, world=world, restarts=restarts, group=group)
    if group:
        lines.say("joined", from_step=first, pid=os.getpid())
    train(lines, net, first, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
