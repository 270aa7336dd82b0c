"""A training that knows nothing of an agent. After three steps it hangs, or goes on slowly, as KIND says.

Rank 0 waits in a collective meanwhile, unless a kind says otherwise. `hangs` and `slow` are all kinds by name.
"""

import ctypes
import multiprocessing
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from pytorchjob_agent import progress

_STEPS = 3
_BATCH_SECONDS = float(os.environ.get("BATCH_SECONDS", "20"))
"""Of a slow loader: far less than the limit, and far more than its step."""
_TRICKLE_SECONDS = 10.0
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PR_SET_PTRACER = 0x4206, 0x4207, 0x59616D61
_FOREVER = 10**6


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank()


def step() -> None:
    """Do a step that all ranks take part in."""
    dist.all_reduce(torch.ones(8))


# Kinds that hang.


def stopped() -> None:
    """Rank 1 is stopped by a signal."""
    if rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    step()


def lock() -> None:
    """Rank 1 waits for a lock that it holds."""
    if rank() == 1:
        held = threading.Lock()
        held.acquire()
        held.acquire()
    step()


def sleep() -> None:
    """Rank 1 sleeps without an end."""
    if rank() == 1:
        time.sleep(_FOREVER)
    step()


def sleep_in_a_loop() -> None:
    """Rank 1 sleeps for a second, again and again."""
    while rank() == 1:
        time.sleep(1)
    step()


def all_sleep() -> None:
    """Every rank sleeps."""
    time.sleep(_FOREVER)


def empty_queue() -> None:
    """Rank 1 waits for a queue that stays empty."""
    if rank() == 1:
        queue.Queue[int]().get()
    step()


def empty_queue_of_a_process() -> None:
    """Rank 1 waits for another process, which sends nothing."""
    if rank() == 1:
        multiprocessing.Queue().get()
    step()


class Stuck(Dataset[torch.Tensor]):
    """Data that never come."""

    def __len__(self) -> int:
        """Return a number that does not matter."""
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        """Wait without an end."""
        time.sleep(_FOREVER)
        return torch.ones(8)


def stuck_loader() -> None:
    """Rank 1's DataLoader has a process that is stuck; it looks after it every five seconds."""
    if rank() == 1:
        next(iter(DataLoader(Stuck(), num_workers=1)))
    step()


def never_entered() -> None:
    """Rank 1 waits for a message of rank 0, which is in another collective."""
    if rank() == 1:
        dist.recv(torch.ones(8), src=0)
    step()


def spins() -> None:
    """Rank 0 polls a collective with all of a core; rank 1 never enters it."""
    if rank() == 1:
        dist.recv(torch.ones(8), src=0)
    work = dist.all_reduce(torch.ones(8), async_op=True)
    while not work.is_completed():
        pass


def waits_for_device() -> None:
    """Rank 0 is busy in its own code, as if it waited for a GPU; rank 1 sleeps and never enters its collective."""
    if rank() == 1:
        time.sleep(_FOREVER)
    dist.all_reduce(torch.ones(8), async_op=True)
    while True:
        sum(range(1000))


def in_c() -> None:
    """Rank 1 is in a call into C that keeps the GIL."""
    if rank() == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    step()


def left_the_loop() -> None:
    """Rank 1 leaves its loop one step before the others."""
    for _ in range(5 if rank() == 1 else 6):
        step()
    dist.barrier()


def another_collective() -> None:
    """Rank 1 is in another collective than rank 0."""
    dist.barrier() if rank() == 1 else step()
    step()


def another_order() -> None:
    """Rank 1 uses two process groups in another order than rank 0."""
    groups = [dist.new_group(), dist.new_group()]
    for group in reversed(groups) if rank() == 1 else groups:
        dist.all_reduce(torch.ones(8), group=group)


# Kinds that are slow. Each ends never, and is no hang.


def trains() -> None:
    """Every rank trains a small model."""
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.1)


def evaluates() -> None:
    """Rank 0 evaluates alone while the others wait for it."""
    while rank() == 0:
        torch.ones(200, 200).matmul(torch.ones(200, 200))
    dist.barrier()


def evaluates_in_pauses() -> None:
    """Rank 0 evaluates alone, mostly waiting for a device: it is asleep for most of the time."""
    while rank() == 0:
        torch.ones(200, 200).matmul(torch.ones(200, 200))
        time.sleep(0.05)
    dist.barrier()


def saves() -> None:
    """Rank 0 writes to a slow disk while the others wait for it."""
    with tempfile.TemporaryFile() as file:
        while rank() == 0:
            file.seek(0)
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(5)
    dist.barrier()


def uploads() -> None:
    """Rank 0 sends a checkpoint over a network that takes a few bytes now and then."""
    if rank() == 0:
        server = socket.create_server(("127.0.0.1", 0))
        subprocess.Popen([sys.executable, "-c", _SINK, str(server.getsockname()[1])])
        client, _ = server.accept()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        while True:
            client.sendall(b"x" * 65536)
    dist.barrier()


def compiles() -> None:
    """Rank 0 waits for a compiler, a process of its own."""
    while rank() == 0:
        subprocess.run([sys.executable, "-c", _COMPILER], check=True)
    dist.barrier()


class Slow(Dataset[torch.Tensor]):
    """Data that take long."""

    def __len__(self) -> int:
        """Return a number that is never reached."""
        return _FOREVER

    def __getitem__(self, index: int) -> torch.Tensor:
        """Wait, and return a sample."""
        time.sleep(_BATCH_SECONDS)
        return torch.ones(8)


def loads_slowly() -> None:
    """Every rank waits for its data for almost all of the time, and prints nothing."""
    for _ in DataLoader(Slow()):
        step()


def loads_slowly_by_a_process() -> None:
    """The same with the data from another process."""
    for _ in DataLoader(Slow(), num_workers=1):
        step()


class Trickle(Dataset[torch.Tensor]):
    """Data that come over the network, a few bytes at a time; a sample takes hours."""

    def __len__(self) -> int:
        """Return a number that is never reached."""
        return _FOREVER

    def __getitem__(self, index: int) -> torch.Tensor:
        """Read what does not end."""
        server = socket.create_server(("127.0.0.1", 0))
        subprocess.Popen([sys.executable, "-c", _SOURCE, str(server.getsockname()[1])])
        client, _ = server.accept()
        while client.recv(100):
            pass
        return torch.ones(8)


def loads_from_the_network() -> None:
    """A DataLoader's process waits for bytes that trickle in."""
    for _ in DataLoader(Trickle(), num_workers=1):
        step()


def debugged() -> None:
    """Rank 1 is stopped by a debugger, during a long pause."""
    if rank() == 1:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        subprocess.Popen([sys.executable, __file__, "debugger", str(os.getpid())])
        time.sleep(_FOREVER)
    step()


def debugger(pid: int) -> None:
    """Attach to a process, stop it, and stay."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(_PTRACE_SEIZE, pid, None, None) or libc.ptrace(_PTRACE_INTERRUPT, pid, None, None):
        sys.exit(f"cannot attach: error {ctypes.get_errno()}")
    time.sleep(_FOREVER)


_SINK = f"""
import socket, sys, time
reader = socket.socket()
reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
reader.connect(("127.0.0.1", int(sys.argv[1])))
while reader.recv(4096):
    time.sleep({_TRICKLE_SECONDS})
"""
_SOURCE = f"""
import socket, sys, time
writer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    writer.sendall(b"x" * 100)
    time.sleep({_TRICKLE_SECONDS})
"""
_COMPILER = """
import time
end = time.monotonic() + 30
while time.monotonic() < end:
    compile("x = [" + "1 + 2, " * 1000 + "]", "code", "exec")
    time.sleep(0.1)
"""

_HANGS: tuple[Callable[[], None], ...] = (
    *(stopped, lock, sleep, sleep_in_a_loop, all_sleep, empty_queue, empty_queue_of_a_process),
    *(stuck_loader, never_entered, spins, waits_for_device, in_c, left_the_loop, another_collective, another_order),
)
_SLOW: tuple[Callable[[], None], ...] = (
    *(trains, evaluates, evaluates_in_pauses, saves, uploads, compiles),
    *(loads_slowly, loads_slowly_by_a_process, loads_from_the_network, debugged),
)


def _by_name(kinds: tuple[Callable[[], None], ...]) -> Iterator[tuple[str, Callable[[], None]]]:
    yield from ((kind.__name__.replace("_", "-"), kind) for kind in kinds)


hangs = dict(_by_name(_HANGS))
slow = dict(_by_name(_SLOW))


def main() -> None:
    """Train for a few steps, then do what the kind says."""
    kind = (hangs | slow)[os.environ["KIND"]]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(days=1))  # torch ends ranks that wait for 30 minutes
    for number in range(_STEPS):
        step()
        print(f"step {number}", flush=True)
        if os.environ.get("REPORTS"):
            progress(number)
    dist.barrier()
    print(f"{kind.__name__} begins", flush=True)
    kind()


if __name__ == "__main__":
    if sys.argv[1:2] == ["debugger"]:
        debugger(int(sys.argv[2]))
    else:
        main()
