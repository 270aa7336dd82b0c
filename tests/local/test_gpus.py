from pathlib import Path
from typing import Any

import pytest

from pytorchjob.local.gpus import RESOURCE, Pool, found
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import job, role


def pod(index: int, wanted: int) -> dict[str, Any]:
    container = {"name": "pytorch", "resources": {"limits": {RESOURCE: wanted}}}
    return {"metadata": {"name": f"tiny-worker-{index}"}, "spec": {"containers": [container]}}


def pool(devices: str, wanted: int) -> Pool:
    limits = {"limits": {RESOURCE: wanted}}
    return Pool(
        tuple(devices.split()), PyTorchJob.model_validate(job(Worker=role(["x"], replicas=2, resources=limits)))
    )


@pytest.mark.parametrize(
    ("devices", "wanted", "shares"),
    [
        pytest.param("0 1 2 3", 2, ["0,1", "2,3"], id="each replica gets its own"),
        pytest.param("0 1 2", 2, ["", ""], id="too few: none gets any, so that all agree on the backend"),
        pytest.param("0 1", 0, ["", ""], id="nothing asked for, nothing seen"),
        pytest.param("", 1, [None, None], id="a machine without any is left alone"),
    ],
)
def test_devices_are_shared_out(devices: str, wanted: int, shares: list[str | None]) -> None:
    free = pool(devices, wanted)
    assert [free.take(pod(index, wanted)) for index in range(2)] == shares


def test_devices_come_back_with_their_pod() -> None:
    free = pool("0 1", 1)
    first = free.take(pod(0, 1))
    free.take(pod(1, 1))
    free.give_back("tiny-worker-0")
    assert free.take(pod(2, 1)) == first


def test_devices_are_found_where_the_driver_shows_them(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert found({}, tmp_path) == ("0", "1")
    assert found({"CUDA_VISIBLE_DEVICES": "3, GPU-x"}, tmp_path) == ("3", "GPU-x")
