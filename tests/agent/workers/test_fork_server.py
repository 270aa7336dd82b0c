"""What shows that a process cannot be forked any more."""

import pytest

from pytorchjob_agent.workers.fork_server import touched_gpu


@pytest.mark.parametrize(
    ("links", "found"),
    [
        pytest.param(["/dev/null", "socket:[1]"], None, id="nothing"),
        pytest.param(["/dev/nvidiactl", "/dev/nvidia0"], None, id="GPUs were counted"),
        pytest.param(["/dev/nvidiactl", "/dev/nvidia-uvm"], "/dev/nvidia-uvm", id="CUDA was started"),
        pytest.param(["/dev/kfd"], "/dev/kfd", id="ROCm was started"),
    ],
)
def test_a_gpu_in_use_shows_in_the_open_files(links: list[str], found: str | None) -> None:
    assert touched_gpu(links) == found
