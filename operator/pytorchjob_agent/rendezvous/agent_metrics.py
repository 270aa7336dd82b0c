"""The agent's metrics in the text format of Prometheus: its round, its workers, their progress. Pure.

The names have a bounded number of series for each pod; docs/monitoring.md lists them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytorchjob_agent.contract.messages import Assigned, Heartbeat

PREFIX = "pytorchjob_agent"
STATES = ("UNKNOWN", "INIT", "HEALTHY", "UNHEALTHY", "STOPPED", "SUCCEEDED", "FAILED")
"""torch's states of a worker group."""
HELP = {
    "workers_state": "1 for the state of the worker group.",
    "round": "Number of the current round in its leader's term.",
    "members": "Pods that take part in the round.",
    "world_size": "Worker processes of all members.",
    "restarts": "Restarts of the workers after failures in this job.",
    "step": "Steps done by the furthest worker of this pod.",
    "steps_total": "Steps to do, as the script reports.",
    "progress_metric": "A number that the script reports.",
    "coordinator_silence_seconds": "Seconds without the coordinator; 0 while it hears this agent.",
    "peer_silence_seconds": "Seconds since another member of the round was heard.",
}
"""What each metric is; all of them are gauges."""
_Sample = tuple[Mapping[str, str], float | None]


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the agent knows when it is scraped."""

    state: str
    """torch's name of the worker group's state."""
    assigned: Assigned | None
    """The current round; None before the first."""
    heartbeat: Heartbeat
    """What the agent reports to the coordinator now."""
    coordinator_silence: float = 0.0
    peer_silence: float = 0.0


def metrics_text(facts: AgentFacts) -> str:
    """Return the metrics; a metric without a value is left out."""
    return "".join(_lines(facts))


def _lines(facts: AgentFacts) -> Iterator[str]:
    for name, samples in _samples(facts).items():
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            yield f"# HELP {PREFIX}_{name} {HELP[name]}\n# TYPE {PREFIX}_{name} gauge\n"
        for labels, value in known:
            yield f"{PREFIX}_{name}{_labels(labels)} {float(value)!r}\n"


def _samples(facts: AgentFacts) -> dict[str, list[_Sample]]:
    assigned, heartbeat = facts.assigned, facts.heartbeat
    return {
        "workers_state": [({"state": state}, float(state == facts.state)) for state in STATES],
        "round": [({}, None if assigned is None else assigned.round.number)],
        "members": [({}, None if assigned is None else assigned.size)],
        "world_size": [({}, None if assigned is None else assigned.world_size)],
        "restarts": [({}, None if assigned is None else assigned.restarts)],
        "step": [({}, heartbeat.step)],
        "steps_total": [({}, heartbeat.total)],
        "progress_metric": [({"metric": name}, value) for name, value in heartbeat.metrics.items()],
        "coordinator_silence_seconds": [({}, facts.coordinator_silence)],
        "peer_silence_seconds": [({}, facts.peer_silence)],
    }


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
