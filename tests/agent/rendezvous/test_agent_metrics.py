"""What Prometheus reads of an agent."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pytorchjob_agent.contract.messages import Assigned, Heartbeat, RoundId
from pytorchjob_agent.rendezvous.agent_metrics import HELP, PREFIX, STATES, AgentFacts, metrics_text

ASSIGNED = Assigned(RoundId(3, 7), 0, 2, 0, 4, "127.0.0.1", 29500, 5)
WORKING = AgentFacts("HEALTHY", ASSIGNED, Heartbeat(50, 200, {"loss": 0.25}), 0.0, 1.5)
WAITING = AgentFacts("INIT", None, Heartbeat(), 12.0)


def read(facts: AgentFacts) -> dict[str, float]:
    """The samples that are not 0, by name and label."""
    samples = [sample for family in text_string_to_metric_families(metrics_text(facts)) for sample in family.samples]
    named = {" ".join((sample.name.removeprefix(f"{PREFIX}_"), *sample.labels.values())): sample for sample in samples}
    return {name: sample.value for name, sample in named.items() if sample.value}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            WORKING,
            {
                "workers_state HEALTHY": 1.0,
                "round": 7.0,
                "members": 2.0,
                "world_size": 4.0,
                "restarts": 5.0,
                "step": 50.0,
                "steps_total": 200.0,
                "progress_metric loss": 0.25,
                "peer_silence_seconds": 1.5,
            },
            id="it works in a round",
        ),
        pytest.param(
            WAITING, {"workers_state INIT": 1.0, "coordinator_silence_seconds": 12.0}, id="it waits for its first round"
        ),
    ],
)
def test_an_agent_reports(facts: AgentFacts, expected: dict[str, float]) -> None:
    assert read(facts) == expected


def test_the_name_of_a_metric_may_have_any_character() -> None:
    facts = AgentFacts("HEALTHY", None, Heartbeat(metrics={'a "b"\\c': 1.0}))
    assert read(facts)['progress_metric a "b"\\c'] == 1.0


def test_every_state_of_torch_has_a_series() -> None:
    from torch.distributed.elastic.agent.server.api import WorkerState

    assert {state.name for state in WorkerState} == {*STATES}


def test_the_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
    assert set(re.findall(rf"^\| `{PREFIX}_(\w+)`", page, re.MULTILINE)) == {*HELP}
