"""docs/first-job.md as it is written, with a script that has nothing of this project."""

from pathlib import Path

import pytest
import yaml

from e2e.conftest import CACHE, KUBECONFIG, ROOT
from e2e.faults import docker, on_kind
from e2e.kubectl import Kubectl
from e2e.pages import build
from tests.shell.blocks import shell
from tests.shell.following import follow_text

pytestmark = [pytest.mark.long]
PAGE = "docs/first-job.md"
AGENT, IMAGE = "pytorchjob/agent:dev", "pytorchjob/agents-page:dev"
SCRIPT = """
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(1, 21):
    loss = model(torch.randn(64, 10)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {dist.get_rank()} epoch {epoch}/20 loss {loss.item():.4f}", flush=True)
    time.sleep(0.2)
dist.destroy_process_group()
"""


def spread(file: Path) -> None:
    """Add the page's lines for two nodes, and the rights that the namespace of the test asks for."""
    text = (ROOT / PAGE).read_text()
    lines = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    job = yaml.safe_load(file.read_text())
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    template |= {**lines, "securityContext": security}
    (container,) = template["containers"]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    file.write_text(yaml.safe_dump(job))


def test_a_script_trains_on_two_nodes_as_the_page_shows(kubectl: Kubectl, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_bytes(KUBECONFIG.read_bytes())
    Kubectl(kubectl.program, config, kubectl.namespace)("config", "set-context", "--current")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)

    def types(index: int) -> str:
        where = {"KUBECONFIG": str(config), "IMAGE": "pytorchjob/examples-base:dev"}
        return follow_text(shell(PAGE)[index].text, folder, [CACHE], seconds=300, **where)

    assert "Succeeded" in types(0)
    spread(folder / "pytorchjob.yaml")
    assert "rank 1 epoch 20/20" in types(1)
    assert kubectl.conditions("mine")["Succeeded"] == "True"
    types(2)
    assert "Succeeded" in kubectl.finish("mine")
    types(3)
    assert len({pod["spec"]["nodeName"] for pod in kubectl.pods("mine")}) == 2
    assert "Succeeded" in types(4)


@pytest.mark.skipif(not on_kind(), reason="it uses the images of this machine's Docker")
def test_the_dockerfile_of_the_agents_page_installs_the_agent(tmp_path: Path) -> None:
    page = (ROOT / "docs/agent.md").read_text()
    dockerfile = page.partition("```dockerfile\n")[2].partition("```")[0]
    # Neither image can be pulled here. The first has Python and no agent.
    images = {"pytorch/pytorch:latest": "pytorchjob/operator-base:dev", "REGISTRY/pytorchjob-agent:0.1.0": AGENT}
    for name, here in images.items():
        assert name in dockerfile
        dockerfile = dockerfile.replace(name, here)
    (tmp_path / "Dockerfile").write_text(dockerfile)
    (tmp_path / "train.py").touch()
    build(tmp_path, IMAGE)
    try:
        assert "run" in docker("run", "--rm", IMAGE, "python", "-m", "pytorchjob_agent", "--help")
    finally:
        docker("rmi", IMAGE)
