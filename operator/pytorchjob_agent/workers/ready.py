"""A forked process that makes the context of a GPU before there is a program to run, and then waits for one.

It is a child of the fork server, which has touched no GPU. The context and cuBLAS take longer than a fork, and a round
has to wait for them. Until the program comes, the process has a session of its own and no variable of a round.
"""

import os
import socket
import sys
from collections.abc import Mapping

from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.readable import wait_readable
from pytorchjob_agent.workers.forked_program import Program

PAUSE_SECONDS = 20.0
"""The workers that have just started make their own contexts first."""
OUTPUTS = 2
_CUDA = ("CUDA_", "CUBLAS_", "NVIDIA_", "PYTORCH_CUDA", "PYTORCH_ALLOC", "PYTORCH_NO_CUDA", "HIP_", "ROCR_")
"""Variables that are read when a context is made."""


def differs(born: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Return whether a variable has changed that is read when a context is made."""
    names = {name for name in {*born, *env} if name.startswith(_CUDA)}
    return any(born.get(name) != env.get(name) for name in names)


def wait(channel: socket.socket, device: int, pause: float) -> tuple[Program, list[int]]:
    """Make the context of a device, unless a program comes within `pause` seconds; return the program and its outputs.

    The process ends if the launcher has gone.
    """
    if not wait_readable([channel], pause):
        make_context(device)
    message, fds, _, _ = socket.recv_fds(channel, 1, 1 + OUTPUTS)
    if not message:
        os._exit(0)
    with open(fds[0], encoding="ascii") as file:
        return Program.from_json(file.read()), fds[1:]


def make_context(device: int) -> None:
    """Make the context of a GPU, and cuBLAS in it; without GPUs nothing. It is not seen to fail: the script sees it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return
    try:
        with torch.cuda.device(device % torch.cuda.device_count()):
            ones = torch.ones(8, 8, device="cuda")
            ones.mm(ones)
            torch.cuda.synchronize()
            del ones
            torch.cuda.empty_cache()
    except RuntimeError as error:
        say(f"no worker waits on GPU {device}: {error}")
        os._exit(1)
