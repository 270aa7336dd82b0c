"""What is left of a job's saves without its pods."""

from typing import Any

import pytest

from pytorchjob_operator.model import kept_saves
from pytorchjob_operator.model.kept_saves import Kept

CLAIM = {"persistentVolumeClaim": {"claimName": "shared"}}
MEMORY = {"directory": "/checkpoints", "memory": "1Gi"}
DURABLE = {**MEMORY, "durable": {"directory": "/mnt/run-1"}}
AGENT, TORCHRUN = ["pytorchjob-agent", "run", "--", "train.py"], ["torchrun", "train.py"]


def spec(
    checkpoint: dict[str, Any] | None, volume: dict[str, Any] | None = None, at: str = "/mnt", **more: Any
) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "pytorch", "image": "train:1", "command": more.get("command", AGENT)}
    pod: dict[str, Any] = {"containers": [container]}
    if volume is not None:
        pod["volumes"] = [{"name": "data", **volume}]
        container["volumeMounts"] = [{"name": "data", "mountPath": at, **more.get("mount", {})}]
    roles = {"Worker": {"replicas": more.get("replicas", 2), "template": {"spec": pod}}}
    agent = {} if checkpoint is None else {"agent": {"checkpoint": checkpoint}}
    return {"pytorchReplicaSpecs": roles, **agent}


JOBS = [
    pytest.param(spec(MEMORY), Kept.NOTHING, 1, id="memory alone"),
    pytest.param(spec(MEMORY, replicas=1), Kept.NOTHING, 2, id="memory of one pod"),
    pytest.param(spec(MEMORY, command=TORCHRUN), Kept.NOTHING, 2, id="memory, and no agent"),
    pytest.param(spec(MEMORY, command=[]), Kept.NOTHING, 1, id="the image may start the agent"),
    pytest.param(
        spec(MEMORY, command=["python", "-m", "pytorchjob_agent", "run"]), Kept.NOTHING, 1, id="the agent as a module"
    ),
    pytest.param(spec(MEMORY, CLAIM), Kept.NOTHING, 1, id="memory beside a claim for data"),
    pytest.param(spec(MEMORY, CLAIM, "/checkpoints"), Kept.VOLUME, 0, id="a claim instead of memory"),
    pytest.param(spec(MEMORY, {"emptyDir": {}}, "/checkpoints"), Kept.NOTHING, 1, id="an emptyDir instead of memory"),
    pytest.param(spec(DURABLE, CLAIM), Kept.DURABLE, 0, id="a durable directory on a claim"),
    pytest.param(spec(DURABLE, CLAIM, replicas=1), Kept.DURABLE, 0, id="a durable directory, one pod"),
    pytest.param(spec(DURABLE, CLAIM, command=TORCHRUN), Kept.DURABLE, 1, id="a durable directory, and no agent"),
    pytest.param(spec(DURABLE), Kept.NOTHING, 1, id="a durable directory in the container"),
    pytest.param(spec(DURABLE, {"emptyDir": {}}), Kept.NOTHING, 1, id="a durable directory that ends with the pod"),
    pytest.param(spec(DURABLE, CLAIM, mount={"readOnly": True}), Kept.NOTHING, 1, id="one that cannot be written"),
    pytest.param(spec(None), Kept.NOTHING, 0, id="no checkpoints that the operator knows, no volume"),
    pytest.param(spec(None, CLAIM), Kept.VOLUME, 0, id="a claim for what the script saves"),
    pytest.param({}, Kept.NOTHING, 0, id="no spec"),
]


@pytest.mark.parametrize(("job", "kept", "warnings"), JOBS)
def test_what_outlives_the_pods(job: dict[str, Any], kept: Kept, warnings: int) -> None:
    assert (kept_saves.kept(job), len(list(kept_saves.warnings(job)))) == (kept, warnings)
