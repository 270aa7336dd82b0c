"""What a command imports. Imports are most of the time from its start to its end, so each imports what it needs."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.people.scripted_server import Answer, Serve

ROOT = Path(__file__).parents[2]
FILE = str(ROOT / "examples/digits/pytorchjob.yaml")
RUN = """
import atexit, sys
from pytorchjob.cli import main
names = sys.argv.pop(1).split(",")
atexit.register(lambda: print([name for name in names if name in sys.modules], file=sys.stderr))
main()
"""
"""Runs the command line, then prints which modules of its first argument were imported."""
OTHERS = ("aiohttp", "kopf", "prometheus_client", "rich")
LOCAL = (*OTHERS, "asyncio", "cryptography", "kubernetes")
"""The kubernetes package reads kubeconfigs. Half of the time of a command that asks a cluster is its import."""
ROUNDS = ("pytorchjob_operator.rounds.decide", "pytorchjob_agent.contract.messages")
CLIENT = ("pytorchjob.cluster.connect", "urllib3")
CHECK = ("pydantic", "pytorchjob_operator.model.check")
PLAN = ("pytorchjob_operator.plan",)
MODEL = ("pytorchjob_operator.model",)


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        pytest.param(["--help"], (*LOCAL, *ROUNDS, *CLIENT, *CHECK, *PLAN, "yaml"), id="the index"),
        pytest.param(["validate", FILE], (*LOCAL, *ROUNDS, *CLIENT, *PLAN), id="validate"),
        pytest.param(["plan", FILE], (*LOCAL, *ROUNDS, *CLIENT), id="plan"),
        pytest.param(["list"], (*OTHERS, *ROUNDS, *PLAN, *MODEL), id="list"),
        pytest.param(["events", "digits"], (*OTHERS, *ROUNDS, *PLAN, *MODEL), id="events"),
        pytest.param(["logs", "digits"], (*OTHERS, *ROUNDS, *PLAN, *MODEL), id="logs"),
        pytest.param(["status", "digits"], (*OTHERS, *ROUNDS, *PLAN, *MODEL), id="status"),
        pytest.param(["submit", FILE], (*OTHERS, *ROUNDS, *PLAN), id="submit"),
    ],
)
def test_a_command_imports_only_what_it_needs(
    serve: Serve, tmp_path: Path, command: list[str], unneeded: tuple[str, ...]
) -> None:
    config = tmp_path / "config"
    config.write_text(kubeconfig(serve(Answer(a_job_and_empty_lists())).url))
    done = subprocess.run(
        [sys.executable, "-c", RUN, ",".join(unneeded), *command],
        env={"PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def a_job_and_empty_lists() -> dict[str, object]:
    """One answer to all requests."""
    job = yaml.safe_load(Path(FILE).read_text())
    job["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    return {**job, "items": []}


def kubeconfig(url: str) -> str:
    clusters = [{"name": "x", "cluster": {"server": url}}]
    contexts = [{"name": "x", "context": {"cluster": "x"}}]
    return yaml.safe_dump({"current-context": "x", "clusters": clusters, "contexts": contexts})
