"""What only a GPU shows. `make test-gpu` runs it with the machine's own torch; without a GPU, the gloo variants alone.

Several ranks share one GPU: NCCL_HOSTID makes NCCL take each of them for a rank of another host. What is measured goes
to out/gpu/results.jsonl.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agent.rendezvous.conftest import Job, led

ROOT = Path(__file__).parents[2]
TRAIN = Path(__file__).parent / "train.py"
GPU = torch.cuda.is_available()
NEEDS_GPU = pytest.mark.skipif(not GPU, reason="this machine has no NVIDIA GPU")
NCCL = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "CUDA_VISIBLE_DEVICES": "0"}
Record = Callable[..., None]


@pytest.fixture(params=["gloo", pytest.param("nccl", marks=NEEDS_GPU)])
def backend(request: pytest.FixtureRequest) -> str:
    """The backend of the ranks."""
    return str(request.param)


@pytest.fixture
def job(tmp_path: Path, backend: str) -> Iterator[Job]:
    """A job of real agents whose ranks use this backend."""
    with led(tmp_path) as made:
        made.env |= {"BACKEND": backend, **(NCCL if backend == "nccl" else {})}
        yield made


@pytest.fixture(scope="session")
def record() -> Record:
    """Writes one line of figures, with the machine."""
    path = ROOT / "out" / "gpu" / "results.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    driver = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device = subprocess.run(driver, capture_output=True, text=True, check=True).stdout.strip() if GPU else "CPU"

    def write(what: str, **values: Any) -> None:
        machine = {"device": device, "cores": os.cpu_count(), "torch": torch.__version__}
        at = datetime.now(UTC).isoformat(timespec="seconds")  # noqa: TID251  the day of a measurement
        with path.open("a") as file:
            file.write(json.dumps({"what": what, **values, **machine, "at": at}) + "\n")

    return write
