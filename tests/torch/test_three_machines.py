"""torchrun by hand, as the pages have it, on three machines at once: each with its own network and name."""

import re
from pathlib import Path

import pytest

from tests.shell.blocks import ROOT
from tests.shell.following import follow, run_by
from tests.shell.machines import on_each, possible
from tests.shell.register import MACHINES

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not possible(), reason="this user may make no network namespaces here"),
]
SCRIPT = """
import os, socket, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([dist.get_rank()])
dist.all_reduce(mine)
place = "node={GROUP_RANK} local={LOCAL_RANK}".format(**os.environ)
print(f"{socket.gethostname()} {place} sum={mine.item()}", *sys.argv[1:], flush=True)
dist.destroy_process_group()
"""


def test_the_examples_command_trains_on_three_machines() -> None:
    [key] = run_by(f"{MACHINES}::test_the_examples_command_trains_on_three_machines")
    printed = follow(key, ROOT, seconds=800, inside=on_each("machine-0"), OMP_NUM_THREADS="1")
    found = re.findall(r"^rank=(\d) world_size=3 machine=(\d) slope=(\S+) offset=(\S+)$", printed, re.MULTILINE)
    assert sorted(rank for rank, _, _, _ in found) == ["0", "1", "2"], printed
    assert sorted(machine for _, machine, _, _ in found) == ["0", "1", "2"], printed
    assert {(slope, offset) for _, _, slope, offset in found} == {("2.6281", "0.8282")}


def test_the_command_to_move_away_from_trains_on_three_machines(tmp_path: Path) -> None:
    [key] = run_by(f"{MACHINES}::test_the_command_to_move_away_from_trains_on_three_machines")
    (tmp_path / "train.py").write_text(SCRIPT)
    printed = follow(key, tmp_path, seconds=800, inside=on_each("host"), OMP_NUM_THREADS="1")
    found = re.findall(r"^(machine-\d) node=(\d) local=(\d) sum=66 --epochs 10$", printed, re.MULTILINE)
    assert len({(machine, local) for machine, _, local in found}) == len(found) == 12, printed
    assert len({machine: node for machine, node, _ in found}) == 3
