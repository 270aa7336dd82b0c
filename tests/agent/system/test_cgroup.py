"""Limits of made-up cgroups, in the three shapes that containers see."""

from pathlib import Path

import pytest

from pytorchjob_agent.system import cgroup

V2 = "0::/\n"
NESTED = "0::/pod/container\n"
V1 = "5:cpu,cpuacct:/kubepods/pod1\n4:memory:/kubepods/pod1\n0::/\n"
GIB = 2**30


@pytest.mark.parametrize(
    ("own", "files", "cpus", "memory"),
    [
        pytest.param(V2, {"cpu.max": "150000 100000", "memory.max": f"{GIB}"}, 1.5, GIB, id="version 2"),
        pytest.param(V2, {"cpu.max": "max 100000", "memory.max": "max"}, None, None, id="version 2 without limits"),
        pytest.param(
            NESTED,
            {"pod/cpu.max": "100000 100000", "pod/container/cpu.max": "max 100000", "pod/container/memory.max": "7"},
            1.0,
            7,
            id="the pod's limit counts for its container",
        ),
        pytest.param(
            V1,
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": f"{GIB}",
            },
            0.5,
            GIB,
            id="version 1, the path is the host's",
        ),
        pytest.param(
            V1,
            {"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": f"{2**63 - 4096}"},
            None,
            None,
            id="version 1 without limits",
        ),
        pytest.param("", {}, None, None, id="no cgroup at all"),
        pytest.param("nonsense\n", {"cpu.max": "x"}, None, None, id="what nobody understands"),
    ],
)
def test_limits(own: str, files: dict[str, str], cpus: float | None, memory: int | None, tmp_path: Path) -> None:
    root, path = tmp_path / "root", tmp_path / "own"
    path.write_text(own)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    assert (cgroup.cpus(root, path), cgroup.memory(root, path)) == (cpus, memory)


def test_no_file_is_no_limit(tmp_path: Path) -> None:
    assert cgroup.cpus(tmp_path, tmp_path / "none") is None
