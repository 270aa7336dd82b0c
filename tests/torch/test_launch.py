"""torchrun's own start of its agent, which an injected agent takes over, and the configuration that it gets."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from torch.distributed import run
from torch.distributed.launcher import api

from pytorchjob_agent import torch_compat

pytestmark = pytest.mark.torch
SCRIPT = "train.py"


def test_torchrun_starts_its_agent_by_a_name_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate and Fabric call torchrun's `run`, which comes by here too."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(api, "launch_agent", lambda *given, **_: calls.append(given))
    run.run(run.get_args_parser().parse_args(["--nnodes=2", "--node-rank=1", "--nproc-per-node=3", SCRIPT, "--lr=1"]))
    ((config, entrypoint, arguments),) = calls
    assert isinstance(entrypoint, str)
    assert arguments == ["-u", SCRIPT, "--lr=1"]
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (2, 2, 3)
    assert (config.rdzv_backend, config.rdzv_configs["rank"]) == ("static", 1)


@pytest.mark.parametrize(
    ("flags", "default"),
    [
        pytest.param([], True, id="no flag"),
        pytest.param(["--tee=3"], False, id="tee"),
        pytest.param(["--redirects=3"], False, id="redirects"),
        pytest.param(["--local-ranks-filter=0"], False, id="a filter"),
        pytest.param(["--log-dir=LOGS"], False, id="a folder"),
    ],
)
def test_the_output_that_a_user_has_chosen_stays_torchs(tmp_path: Path, flags: list[str], default: bool) -> None:
    given = [flag.replace("LOGS", str(tmp_path / "logs")) for flag in flags]
    config, _, _ = run.config_from_args(run.get_args_parser().parse_args([*given, SCRIPT]))
    assert torch_compat.has_default_output(config) is default
