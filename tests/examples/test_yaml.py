"""The examples' jobs: safe, small, and with commands that exist."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
JOBS = sorted((ROOT / "examples").glob("*/pytorchjob.yaml"))


def replicas(path: Path) -> dict[str, Any]:
    """Return the replicas of a job."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())["spec"]["pytorchReplicaSpecs"]
    return found


@pytest.mark.parametrize("path", [pytest.param(path, id=path.parent.name) for path in JOBS])
def test_a_job(path: Path) -> None:
    for replica in replicas(path).values():
        pod = replica["template"]["spec"]
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        (script,) = [word for word in container["command"] if word.endswith(".py")]
        assert (ROOT / script).is_file()
