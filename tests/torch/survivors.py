"""Ranks as processes of this machine, and this process for their agents: who is lost when, and what the others do.

Each rank is forked from a process that has imported torch, like a warm worker. A `Loss` says in which of its operations
a rank kills itself: before it, inside it (its part is on the way), or behind its barrier. `reference` computes the same
training alone, with the ranks that took part in each step.
"""

import io
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_agent.script.surviving import shares, steps
from pytorchjob_agent.shrinks.round_shrinks import ShrinkServer
from pytorchjob_agent.workers.startup import pytorchjob_backends, pytorchjob_shrink, pytorchjob_shrink_torch
from tests.waiting import until

BEFORE, INSIDE, BEHIND = "before", "inside", "behind"
CUT = "cut"
"""The rank lives, but its connections break in its barrier, which the others have passed."""
POSSIBLE = hasattr(distributed_c10d, "_reconfigure")
"""Whether this torch can change a group."""
_SECONDS = 60.0
ENTRY = 0
"""Stands for the way back into the group, in place of an operation."""


class Loss(NamedTuple):
    """A rank that is lost, or of which others are."""

    rank: int
    operation: int
    """Counted from 1."""
    moment: str


@dataclass(frozen=True)
class Survivor:
    """How a rank has ended that was not lost."""

    rank: int
    error: str
    """Type and text of the error that reached the script; empty: none."""
    sizes: Sequence[int] = ()
    """The ranks of the group behind each step."""
    parameters: Sequence[float] = ()
    longest: float = 0.0
    """Seconds of the longest step, without the first two."""


@dataclass(frozen=True)
class Run:
    """What was seen of one run."""

    survivors: Sequence[Survivor]
    seconds: Sequence[float]
    """For each rank that went on, how long it took from its error on."""
    states: Sequence[ShrinkState]
    """For each rank, what its agent has heard."""
    told: float = 0.0
    """Seconds from the end of the lost rank's process until the others were told."""


Result = tuple[list[int], list[float], float]
Script = Callable[[int], Result]


def model() -> Any:
    """The model, equal at all ranks."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).double()


def batch(step: int, rank: int) -> Any:
    """A rank's own batch."""
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank), dtype=torch.float64)


def train(
    rank: int, steps: int = 12, save_every: int = 0, *, constant: bool = False, **options: Any
) -> tuple[list[int], list[float], float]:
    """Train with evaluation, a barrier and a save now and then, as scripts do; `constant`: with a constant batch."""
    own = model()
    ddp = DistributedDataParallel(own, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    sizes, times = [], []
    for step in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        for share in shares(ddp) if constant else [rank]:
            ddp(batch(step, share)).square().mean().backward()
        optimizer.step()
        sizes.append(dist.get_world_size())
        if step % 3 == 2:  # evaluation
            with torch.no_grad():
                loss = own(batch(step, 99)).square().mean()
            dist.all_reduce(loss)
            dist.barrier()
        if step % 4 == 3:  # a word of rank 0
            word = torch.full((3,), float(rank))
            dist.broadcast(word, 0)
            assert len(set(word.tolist())) == 1
        if save_every and step % save_every == save_every - 1:
            if rank == 0:
                torch.save(own.state_dict(), io.BytesIO())
            dist.barrier()
        times.append(time.perf_counter() - began)
    values = torch.cat([each.detach().reshape(-1) for each in own.parameters()])
    return sizes, values.tolist(), max(times[2:], default=0.0)


def reference(participants: Sequence[Sequence[int]]) -> list[float]:
    """Return the parameters of the same training without a group, by the ranks that took part in each step."""
    own = model()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.05, momentum=0.9)
    for step, ranks in enumerate(participants):
        optimizer.zero_grad()
        for rank in ranks:
            (own(batch(step, rank)).square().mean() / len(ranks)).backward()
        optimizer.step()
    return list(torch.cat([each.detach().reshape(-1) for each in own.parameters()]).tolist())


def train_with_returns(rank: int, most: int = 3000, **options: Any) -> Result:
    """Train in a loop that takes lost ranks in; it ends some steps after all ranks are there again."""
    torch.Tensor.numpy = _without_numpy  # type: ignore[method-assign, assignment]
    own = model()
    ddp = DistributedDataParallel(own, **options)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)
    sizes, times, end = list[int](), [], most
    for step in steps(range(most), ddp, optimizer):
        began = time.perf_counter()
        optimizer.zero_grad()
        for share in shares(ddp):
            ddp(batch(step, share)).square().mean().backward()
        optimizer.step()
        sizes.append(dist.get_world_size())
        times.append(time.perf_counter() - began)
        had_a_loss = min(sizes) < sizes[-1] or len(sizes) <= step  # of another rank, or of the one before this
        if end == most and sizes[-1] == int(os.environ["WORLD_SIZE"]) and had_a_loss:
            end = step + 5
        if step == end:
            break
        time.sleep(0.005)
    values = torch.cat([each.detach().reshape(-1) for each in own.parameters()])
    return sizes, values.tolist(), max(times[2:], default=0.0)


def _without_numpy(*_: Any, **__: Any) -> None:
    """An image may have torch and no numpy."""
    raise RuntimeError("Numpy is not available")


class _Revoked(pytorchjob_backends.Nccl):
    """What NCCL does, by gloo: its `abort` does nothing, so the ends of connections stand for it."""

    def form(self, number: int, handles: Sequence[str], place: int, seconds: float) -> None:
        before = pytorchjob_backends.sockets()
        super().form(number, handles, place, seconds)
        self._sockets = pytorchjob_backends.opened(before)

    def leave(self) -> None:
        super().leave()
        pytorchjob_backends.leave(self._sockets)


def _rank(rank: int, env: Mapping[str, str], losses: Sequence[Loss], script: Script, results: Any) -> None:
    """Be one rank."""
    losses = [*losses]
    os.environ.update(env, RANK=str(rank))
    torch.set_num_threads(1)
    try:
        pytorchjob_shrink_torch.register()
        pytorchjob_backends.Nccl = _Revoked  # type: ignore[misc]
        _arm([loss for loss in losses if loss.rank == rank])
        dist.init_process_group("gloo")
        sizes, values, longest = script(rank)
        results.send(json.dumps([rank, "", sizes, values, longest]))
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        if os.environ.get("SHOW"):
            traceback.print_exc()
        results.send(json.dumps([rank, text, [], [], 0.0]))
    sys.stdout.flush()
    os._exit(0)


def _arm(losses: list[Loss]) -> None:
    """Let this process kill itself at these moments."""
    come_in, form = pytorchjob_shrink.Operations.come_in, pytorchjob_shrink.Operations._enter

    def come(self: Any) -> int:
        if any(loss.operation == ENTRY and loss.moment == BEFORE for loss in losses):
            os.kill(os.getpid(), signal.SIGKILL)
        return come_in(self)

    def enter(self: Any, number: int) -> Any:
        found = form(self, number)
        if any(loss.operation == ENTRY and loss.moment == INSIDE for loss in losses):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    pytorchjob_shrink.Operations.come_in, pytorchjob_shrink.Operations._enter = come, enter
    operations = pytorchjob_shrink.Operations
    attempt, run = operations._try, operations.run
    count = [0]

    def lose(moment: str) -> None:
        if any(loss.operation == count[0] and loss.moment == moment for loss in losses):
            os.kill(os.getpid(), signal.SIGKILL)

    def cut(done: Any) -> Any:
        found = [loss for loss in losses if loss.operation == count[0] and loss.moment == CUT]
        if not found or isinstance(done, RuntimeError):
            return done
        losses.remove(found[0])
        time.sleep(0.3)  # the others pass the barrier meanwhile
        return RuntimeError("/gloo/transport/tcp/pair.cc: cut by the test")

    def counted(self: Any, *given: Any, **options: Any) -> Any:
        if not self._inside:
            count[0] += 1
            lose(BEFORE)
        sums = run(self, *given, **options)
        lose(BEHIND)
        return sums

    def tried(self: Any, attempted: Any, again: bool, numbers: Any) -> Any:
        def then(again: bool) -> None:
            attempted(again)
            lose(INSIDE)

        return cut(attempt(self, then, again, numbers))

    operations.run, operations._try = counted, tried


def play(
    size: int,
    losses: Sequence[Loss],
    script: Script = train,
    without: int | None = None,
    returns: bool = False,
    revoked: bool = False,
) -> Run:
    """Run a training of so many ranks, of which some are lost; `without`: this one does not know its agent.

    `returns`: another process takes the place of each lost one. A loss at its `ENTRY` is the one of this process.
    `revoked`: gloo's group is formed and left as NCCL's is, by the same interfaces of torch.
    """
    if losses and not POSSIBLE:
        pytest.skip("this torch cannot change a group")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    servers = [ShrinkServer(1) for _ in range(size)]
    context = get_context("forkserver")  # this process has threads
    context.set_forkserver_preload(["torch", "torch._dynamo", __name__])
    pipes, processes = [], []

    def start(rank: int, losses: Sequence[Loss], enters: int = 0) -> tuple[Any, Any]:
        here, there = context.Pipe(duplex=False)
        env = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "GLOO_SOCKET_IFNAME": "lo",
            pytorchjob_shrink.SHRINK: "" if rank == without else servers[rank].address,
            **({pytorchjob_shrink.ENTERS: str(enters)} if enters else {}),
            **({pytorchjob_backends.BACKENDS: "nccl,gloo"} if revoked else {}),
        }
        process = context.Process(target=_rank, args=(rank, env, losses, script, there), daemon=True)
        process.start()
        there.close()
        return here, process

    for rank in range(size):
        here, process = start(rank, [loss for loss in losses if loss.operation != ENTRY])
        pipes.append(here)
        processes.append(process)

    def replace(rank: int, enters: int) -> None:
        servers[rank].close()
        servers[rank] = ShrinkServer(1)
        pipes[rank], processes[rank] = start(rank, [loss for loss in losses if loss.operation == ENTRY], enters)

    try:
        return _watch(servers, pipes, processes, replace if returns else None)
    finally:
        for process in processes:
            process.kill()
            process.join()
        for server in servers:
            server.close()


def _watch(
    servers: Sequence[ShrinkServer],
    pipes: Sequence[Any],
    processes: Sequence[Any],
    replace: Callable[[int, int], None] | None,
) -> Run:
    """Tell the others when a rank has been killed, and collect what they say."""
    alive, found = [*range(len(processes))], dict[int, Survivor]()
    entering, replaced = list[int](), set[int]()
    number, end, told = 0, time.monotonic() + _SECONDS, 0.0
    while len(found) < len(alive):
        assert time.monotonic() < end, f"ranks {sorted(set(alive) - set(found))} do not end"
        waiting = [processes[rank].sentinel for rank in alive if rank not in found]
        waiting += [processes[rank].sentinel for rank in entering]
        ready, _, _ = select.select([*waiting, *(pipes[rank] for rank in alive if rank not in found)], [], [], 0.1)
        ended = time.monotonic()
        if entering and any(servers[rank].entered > number for rank in [*alive, *entering]):
            number, alive, entering = number + 1, sorted([*alive, *entering]), []
            for rank in alive:
                servers[rank].tell(number, alive)  # as the coordinator does, once it has heard of it
        elif entering and processes[entering[0]].sentinel in ready:
            number, entering = number + 2, []
            for other in alive:
                servers[other].tell(number, alive)
            continue
        for rank in [*alive]:
            if rank in found:
                continue
            if pipes[rank] in ready and (said := _read(pipes[rank])) is not None:
                found[rank] = Survivor(*said)
            elif processes[rank].sentinel in ready:
                processes[rank].join()
                alive.remove(rank)
                number += 1
                for other in alive:
                    servers[other].tell(number, alive)
                told = max(told, time.monotonic() - ended)
                if replace is not None and rank not in replaced:
                    replaced.add(rank)
                    replace(rank, number + 1)
                    entering = [rank]
                    for other in alive:
                        servers[other].tell(number, alive, entering=entering)
    for process in processes:
        process.join(_SECONDS)
    until(lambda: not any(server._workers for server in servers))  # all that they said is heard then
    seconds = [value for server in servers for value in server.seconds]
    return Run([found[rank] for rank in sorted(found)], seconds, [server.state for server in servers], told)


def _read(pipe: Any) -> Any:
    try:
        return json.loads(pipe.recv())
    except EOFError:
        return None
