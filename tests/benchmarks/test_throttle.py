"""Where the kernel's limit of CPU time is written, in both versions of control groups."""

from pathlib import Path

import pytest

from benchmarks.throttle import Throttle, own_group

V1 = "8:pids:/\n2:cpu,cpuacct:/jobs/a\n0::/\n"
V2 = "0::/jobs/a\n"


@pytest.mark.parametrize(
    ("table", "group"),
    [
        pytest.param(V1, "sys/cpu,cpuacct/jobs/a", id="version 1"),
        pytest.param(V2, "sys/jobs/a", id="version 2"),
        pytest.param("0::/\n", "sys", id="version 2, the root"),
    ],
)
def test_the_group_of_this_process(table: str, group: str) -> None:
    assert own_group(table, Path("sys")) == Path(group)


@pytest.mark.parametrize(
    ("file", "limited", "free", "weight"),
    [
        pytest.param("cpu.max", "40000 100000", "max 100000", ("cpu.weight", "300"), id="version 2"),
        pytest.param("cpu.cfs_quota_us", "40000", "-1", ("cpu.shares", "3072"), id="version 1"),
    ],
)
def test_a_process_has_a_weight_and_a_limit_until_it_has_none(
    tmp_path: Path, file: str, limited: str, free: str, weight: tuple[str, str]
) -> None:
    throttle = Throttle(tmp_path)
    throttle.add(7)
    (group,) = tmp_path.iterdir()
    assert (group / "cgroup.procs").read_text() == "7"
    for name in (file, weight[0]):
        (group / name).touch()
    throttle.limit(7, 0.4)
    assert (group / file).read_text() == limited
    throttle.limit(7, None)
    assert (group / file).read_text() == free
    throttle.weigh(7, 3)
    assert (group / weight[0]).read_text() == weight[1]
