"""How many processes a pod gets where torchrun itself could only guess."""

from typing import Any

import pytest

from pytorchjob_operator.plan.environment.nproc import per_node
from tests.factories import make_template


def with_limits(limits: dict[str, Any]) -> dict[str, Any]:
    """A template whose main container has these limits, and a sidecar with others."""
    return make_template(
        containers=[
            {"name": "side", "resources": {"limits": {"cpu": "64"}}},
            {"name": "pytorch", "resources": {"limits": limits}},
        ]
    )


@pytest.mark.parametrize(
    ("given", "limits", "expected"),
    [
        pytest.param("auto", {}, "auto", id="without limits torchrun counts"),
        pytest.param("auto", {"cpu": "2"}, "2", id="auto is the CPU limit"),
        pytest.param("auto", {"cpu": "1500m"}, "2", id="a part of a CPU is one more process"),
        pytest.param("auto", {"cpu": 4}, "4", id="a limit written as a number"),
        pytest.param("auto", {"memory": "4Gi"}, "auto", id="memory says nothing"),
        pytest.param("cpu", {"cpu": "500m"}, "1", id="cpu is at least one"),
        pytest.param("cpu", {"cpu": "3", "habana.ai/gaudi": 8}, "3", id="cpu means CPUs also beside devices"),
        pytest.param("gpu", {"cpu": "8"}, "gpu", id="gpu without a device stays: torchrun says what is wrong"),
        pytest.param("auto", {"cpu": "8", "nvidia.com/gpu": 4}, "auto", id="torch counts visible CUDA devices itself"),
        pytest.param("gpu", {"nvidia.com/mig-1g.10gb": 2}, "gpu", id="MIG slices too"),
        pytest.param("gpu", {"amd.com/gpu": "4"}, "gpu", id="and ROCm's"),
        pytest.param("auto", {"cpu": "8", "habana.ai/gaudi": 8}, "8", id="Gaudi by the limit"),
        pytest.param("gpu", {"huawei.com/Ascend910B": "4"}, "4", id="Ascend by the limit, whatever its model"),
        pytest.param("xpu", {"gpu.intel.com/xe": 2}, "2", id="Intel by the limit"),
        pytest.param("auto", {"gpu.intel.com/i915": 2, "gpu.intel.com/millicores": 100}, "2", id="a part is no device"),
        pytest.param("auto", {"huawei.com/Ascend910B": 1, "huawei.com/Ascend910B-memory": 64}, "1", id="nor is memory"),
        pytest.param("auto", {"cpu": "8", "example.com/npu": 2}, "2", id="what the settings name counts too"),
        pytest.param("auto", {"cpu": "8", "rdma/hca": 1}, "8", id="a network card is no device that trains"),
        pytest.param("3", {"cpu": "8"}, "3", id="a number is a number"),
        pytest.param(None, {"cpu": "8"}, None, id="nothing given (the deprecated field says it)"),
        pytest.param("gpu", {"amd.com/cpx_nps1": 8}, "gpu", id="and parts of a GPU of AMD"),
        pytest.param("auto", {"cpu": "96", "amd.com/cpx_nps1": 8}, "auto", id="auto too"),
        pytest.param("auto", {"cpu": "96", "tencent.com/vcuda-core": 8}, "auto", id="an unknown device may be a GPU"),
        pytest.param("cpu", {"cpu": "8", "tencent.com/vcuda-core": 8}, "8", id="cpu means CPUs also beside that"),
        pytest.param("auto", {"cpu": "8", "nvidia.community/disk": 2}, "auto", id="a vendor whose name begins alike"),
        pytest.param("auto", {"cpu": "8", "vpc.amazonaws.com/efa": 4}, "8", id="nor are the cards of a cloud"),
        pytest.param("auto", {"cpu": "8", "hugepages-2Mi": 2}, "8", id="huge pages are not devices"),
        pytest.param("auto", {"cpu": "9999"}, "9999", id="a machine may have 9999"),
        pytest.param("auto", {"cpu": "10k"}, "auto", id="no machine has more"),
        pytest.param("auto", {"cpu": "0"}, "auto", id="no limit"),
        pytest.param("auto", {"cpu": "1e9"}, "auto", id="no machine has so many"),
        pytest.param("auto", {"cpu": "much"}, "auto", id="no quantity"),
    ],
)
def test_processes_per_node(given: str | None, limits: dict[str, Any], expected: str | None) -> None:
    assert per_node(given, with_limits(limits), ("example.com/npu",)) == expected


@pytest.mark.parametrize(
    ("given", "limits", "expected"),
    [
        pytest.param("auto", {"cpu": "96"}, "auto", id="torch counts what the claim gives"),
        pytest.param("gpu", {"cpu": "96"}, "gpu", id="gpu"),
        pytest.param("cpu", {"cpu": "96"}, "96", id="cpu means CPUs"),
        pytest.param("auto", {"habana.ai/gaudi": 8}, "8", id="devices of the limit"),
    ],
)
def test_processes_beside_a_resource_claim(given: str, limits: dict[str, Any], expected: str) -> None:
    template = with_limits(limits)
    template["spec"]["containers"][1]["resources"]["claims"] = [{"name": "gpus"}]
    assert per_node(given, template) == expected


def test_a_template_without_containers_says_nothing() -> None:
    assert per_node("auto", {}) == "auto"
