"""When a process has begun to use the GPU: until then it may be forked."""

import subprocess
import sys

import pytest

from tests.gpu.conftest import NEEDS_GPU, ROOT, Record

PRELUDE = f"import sys; sys.path[:0] = [{str(ROOT / 'operator')!r}]\nfrom pytorchjob_agent.workers import fork_server\n"
LOOK = "print(fork_server.touched_gpu(fork_server._links()))\n"


@NEEDS_GPU
@pytest.mark.parametrize(
    ("code", "touched"),
    [
        pytest.param("import torch\n", False, id="imported"),
        pytest.param("import torch._dynamo, torch._inductor\n", False, id="with the compiler"),
        pytest.param("import torch\ntorch.ones(1, device='cuda')\n", True, id="a tensor"),
    ],
)
def test_the_guard_of_forks_knows_when_a_process_uses_the_gpu(code: str, touched: bool) -> None:
    done = subprocess.run([sys.executable, "-c", PRELUDE + code + LOOK], capture_output=True, text=True, check=True)
    assert (done.stdout.strip() != "None") is touched, done.stdout


@NEEDS_GPU
def test_a_process_that_waits_has_a_context_and_its_cost_is_known(record: Record) -> None:
    """It does what a script does first, and then uses the GPU as any other."""
    code = f"""
import subprocess, sys, time
sys.path[:0] = [{str(ROOT / "operator")!r}]
import torch
from pytorchjob_agent.workers import ready

def used():
    ask = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout)

before, at = used(), time.perf_counter()
ready.make_context(0)
took = time.perf_counter() - at
assert torch.cuda.is_initialized()
cost, at = used() - before, time.perf_counter()
torch.ones(64, 64, device="cuda").mm(torch.ones(64, 64, device="cuda")).sum().item()
print(took, cost, time.perf_counter() - at)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took, cost, first = done.stdout.split()[-3:]
    record("ready", context_seconds=float(took), megabytes=int(cost), first_multiplication_seconds=float(first))


@NEEDS_GPU
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_a_poll_for_requests_costs_behind_queued_kernels(device: str, record: Record) -> None:
    """All ranks ask each other by an all-reduce of 16 bytes: on the GPU it would wait for all queued kernels."""
    code = f"""
import time, torch, torch.distributed as dist
store = dist.HashStore()
dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
big = torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16)
big @ big; torch.cuda.synchronize()
total = 0.0
for _ in range(20):
    for _ in range(5): big @ big
    at = time.perf_counter()
    numbers = torch.tensor([1, 2], device={device!r})
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX); numbers.tolist()
    total += time.perf_counter() - at
    torch.cuda.synchronize()
print(total / 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    record("poll", device_of_poll=device, seconds=float(done.stdout.split()[-1]))
