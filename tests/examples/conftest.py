from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.conftest import start as start  # the fixture
from tests.local.jobs import ROOT


@pytest.fixture
def example(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Returns an example's job, to be run in the test's own folder, with other values of its variables."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def load(name: str, **env: str) -> dict[str, Any]:
        job: dict[str, Any] = yaml.safe_load((ROOT / "examples" / name / "pytorchjob.yaml").read_text())
        for replica in job["spec"]["pytorchReplicaSpecs"].values():
            container = replica["template"]["spec"]["containers"][0]
            kept = [each for each in container.get("env", []) if each["name"] not in env]
            container["env"] = kept + [{"name": key, "value": value} for key, value in env.items()]
        return job

    return load
