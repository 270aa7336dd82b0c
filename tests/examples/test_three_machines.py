"""torchrun by hand, three times at once as the README shows it, and the same as YAML."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.examples.test_examples import ROOT, TORCHRUN, outputs
from tests.examples.test_examples import start as start_python
from tests.local.jobs import Run
from tests.ports import free_port

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
EXAMPLE = ROOT / "examples" / "three-machines"


def by_hand(endpoint: str) -> list[str]:
    """The arguments of torchrun in the README, with an endpoint on this machine."""
    (command,) = re.findall(r"^torchrun (.+)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    assert "machine-0:29500" in command
    return shlex.split(command.replace("machine-0:29500", endpoint))


def lines(text: str) -> list[str]:
    return sorted(re.findall(r"rank=\d world_size=.+", text))


def test_three_torchruns_by_hand_print_what_the_yaml_prints(
    start: Callable[..., Run], example: Callable[..., dict[str, Any]]
) -> None:
    words = by_hand(f"127.0.0.1:{free_port()}")
    printed = lines("\n".join(outputs(*[start_python(*TORCHRUN, *words) for _ in range(3)])))
    assert [line.split()[:2] for line in printed] == [[f"rank={rank}", "world_size=3"] for rank in range(3)]
    assert len({tuple(line.split()[3:]) for line in printed}) == 1, "all have learned the same"

    job = example("three-machines")
    command = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["torchrun", *[word for word in words if not word.startswith(("--nnodes", "--nproc", "--rdzv"))]]
    run = start(job)
    assert run.wait() == 0, run.out + run.err
    assert lines(run.out) == printed
