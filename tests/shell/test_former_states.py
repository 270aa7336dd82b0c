"""The shell block of docs/decisions/0008-safety.md: a test fails in a former state of the code as it is recorded."""

import json
from pathlib import Path

import pytest

from tests.readme import clone
from tests.shell.blocks import ROOT
from tests.shell.following import follow, run_by
from tests.shell.register import FORMER_STATES

RUNS = ROOT / "docs/decisions/0008-runs.jsonl"
REPEATED = {
    "a test that is adapted to old code": "tests/agent/contract/test_before.py",
    "a test of today on the commit before its fix": "tests/kube/test_store_edges.py",
    "a mechanism that is switched off": "tests/agent/rendezvous/test_contact.py",
}
"""One run of each kind, of those that take seconds."""


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("test", REPEATED.values(), ids=REPEATED)
def test_a_recorded_run_is_repeated_by_the_page(tmp_path: Path, test: str) -> None:
    [key] = run_by(FORMER_STATES)
    [line] = [line for line in RUNS.read_text().splitlines() if json.loads(line)["tests"] == [test]]
    outcome, _, _ = json.loads(line)["outcome"].partition(" in ")
    checkout = clone(tmp_path / "clone")
    with pytest.raises(AssertionError) as failed:
        follow(key, checkout, LINE=line, PYTHONPATH="")
    assert f"{outcome} in " in str(failed.value)
