"""The rules match sentences of the operator and the agent. Each sentence is still in its source file."""

from pathlib import Path

import pytest

from pytorchjob.view.causes import limits, nodes, programs, training
from pytorchjob_operator.model.base import ConditionType
from pytorchjob_operator.rounds.values import TrainingReason

SOURCE = Path(__file__).parents[2] / "operator"
OPERATOR, AGENT = "pytorchjob_operator", "pytorchjob_agent"


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("reached the specified backoff limit", f"{OPERATOR}/plan/job_limits.py"),
        ("active longer than specified deadline", f"{OPERATOR}/plan/job_limits.py"),
        ("replica(s) failed", f"{OPERATOR}/plan/outcome.py"),
        ("restarts{within} are used up", f"{OPERATOR}/rounds/budget.py"),
        ("The one restart{within} is used up", f"{OPERATOR}/rounds/budget.py"),
        ("The job has no restarts", f"{OPERATOR}/rounds/budget.py"),
        ("The same error occurred", f"{OPERATOR}/rounds/budget.py"),
        ("did not get past step", f"{OPERATOR}/rounds/budget.py"),
        ('"hangs" if first.hang else f"exited with code {first.exit_code}"', f"{OPERATOR}/rounds/budget.py"),
        ('f"rank {first.rank} ({pod}) {how}{where}: ', f"{OPERATOR}/rounds/budget.py"),
        ("the rendezvous timed out after", f"{OPERATOR}/rounds/waiting_report.py"),
        ("at least ", f"{OPERATOR}/rounds/waiting_report.py"),
        ("no connection for", f"{OPERATOR}/coordinator/authentication.py"),
        ("spec.agent.inject has no effect: ", f"{OPERATOR}/plan/environment/agent_variables.py"),
        ("already exists and does not belong to this job", f"{OPERATOR}/control/apply.py"),
        ("of the deleted job of this name is gone", f"{OPERATOR}/control/apply.py"),
        ('f"Pod: {pod.namespace}.{pod.name} exited with code {pod.exit_code}{why}"', f"{OPERATOR}/plan/pod_events.py"),
        ('f"Error pod {pod.name} {pod.problem.where} message: ', f"{OPERATOR}/plan/pod_events.py"),
        ('INIT_CONTAINER = "pytorchjob-agent-install"', f"{OPERATOR}/plan/inject.py"),
        ("no coordinator within", f"{AGENT}/rendezvous/waiting.py"),
        ("the coordinator refuses this agent: ", f"{AGENT}/rendezvous/waiting.py"),
        ("torch cannot be imported", f"{AGENT}/command/launcher_process.py"),
        ("killed by {name}", f"{AGENT}/workers/failure_report.py"),
        ("but torch {torch.version} sees {torch.visible}", f"{AGENT}/preflight/checks.py"),
        ("PYTORCHJOB_", f"{OPERATOR}/settings.py"),
    ],
)
def test_a_sentence_is_still_written(words: str, file: str) -> None:
    assert words in (SOURCE / file).read_text()


def test_reasons_of_the_rules_are_those_of_the_coordinator() -> None:
    assert {*training._RULES} <= {reason.value for reason in TrainingReason}
    assert {"Degraded", "ConfigValid", "ReplicaFailure", "Waiting"} <= {kind.value for kind in ConditionType}


def test_rules_have_causes_of_their_own_table() -> None:
    degraded = [rule for rules in training._RULES.values() for rule in rules]
    for rules, causes in ((limits._RULES, limits.CAUSES), (nodes._RULES, nodes.CAUSES), (degraded, training.CAUSES)):
        assert {rule.cause.name for rule in rules} <= {cause.name for cause in causes}
    known = {cause.name for cause in (*programs.CAUSES, *training.CAUSES)}
    assert {rule.cause.name for rule in programs._RULES} <= known
