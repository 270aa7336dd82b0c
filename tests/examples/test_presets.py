"""The presets of environment variables: ConfigMaps that a job can take whole, none of which touches what is ours."""

import re
from pathlib import Path

import pytest
import yaml

from pytorchjob_agent.contract import environment

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "examples" / "presets").glob("*.yaml"))
OURS = {value for value in vars(environment).values() if isinstance(value, str) and re.fullmatch("[A-Z_]+", value)}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in PRESETS])
def test_a_preset(path: Path) -> None:
    preset = yaml.safe_load(path.read_text())
    assert (preset["apiVersion"], preset["kind"], preset["metadata"]) == ("v1", "ConfigMap", {"name": path.stem})
    assert preset["data"]
    for name, value in preset["data"].items():
        assert re.fullmatch("[A-Z][A-Z0-9_]*", name)
        assert isinstance(value, str)
        assert name not in OURS


def test_every_preset_is_explained() -> None:
    text = (ROOT / "docs" / "accelerators.md").read_text()
    assert [path.name for path in PRESETS if f"(../examples/presets/{path.name})" not in text] == []
    assert len(PRESETS) > 5
