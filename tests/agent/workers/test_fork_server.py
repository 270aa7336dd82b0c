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
        pytest.param(["/dev/dxg"], "/dev/dxg", id="CUDA of the Windows subsystem"),
        pytest.param(["/dev/dri/renderD128"], "/dev/dri/renderD128", id="Level Zero"),
        pytest.param(["/dev/dri/card0"], None, id="a screen"),
        pytest.param(["/dev/hl0"], "/dev/hl0", id="Gaudi, the older driver"),
        pytest.param(["/dev/accel/accel1"], "/dev/accel/accel1", id="Gaudi, and TPUs"),
        pytest.param(["/dev/davinci3"], "/dev/davinci3", id="Ascend"),
        pytest.param(["/dev/davinci_manager"], "/dev/davinci_manager", id="Ascend's driver"),
        pytest.param(["/dev/neuron0"], "/dev/neuron0", id="Neuron"),
        pytest.param(["/dev/hlx", "/tmp/dev/kfd"], None, id="names that begin or end alike"),
    ],
)
def test_a_gpu_in_use_shows_in_the_open_files(links: list[str], found: str | None) -> None:
    assert touched_gpu(links) == found
