from dataclasses import replace

import pytest

from pytorchjob_operator.model.check import broken_rules, validate_dict
from pytorchjob_operator.model.rules import RULES, Rule
from tests.model import corpus

TWINS = [rule for rule in RULES if rule.broken is not None]


@pytest.mark.parametrize("rule", TWINS, ids=lambda rule: f"{rule.path}: {rule.message[:50]}")
def test_every_rule_has_a_job_that_breaks_it(rule: Rule) -> None:
    messages = {problem.message for bad in corpus.BAD for problem in validate_dict(bad.job)}
    assert any(message == rule.message or message.startswith(f"{rule.message}: ") for message in messages)


def test_a_wrong_role_is_named_beside_the_right_ones() -> None:
    path = "spec.pytorchReplicaSpecs"
    bad = corpus.changed(corpus.job(), {f"{path}.PS": corpus.role(), f"{path}.worker": corpus.role()})
    assert [(problem.field, problem.message.rpartition(": ")[2]) for problem in validate_dict(bad)] == [
        (path, "PS, worker; did you mean Worker?")
    ]


@pytest.mark.parametrize("job", corpus.GOOD.values(), ids=corpus.GOOD.keys())
def test_a_good_job_breaks_none(job: corpus.Job) -> None:
    assert broken_rules(job) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.path}: {rule.message[:50]}")
def test_only_a_transition_has_no_twin(rule: Rule) -> None:
    assert (rule.broken is None) == ("oldSelf" in rule.cel)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.path}: {rule.message[:50]}")
def test_a_message_fits_one_line_as_the_api_server_demands(rule: Rule) -> None:
    assert "\n" not in rule.message
    assert rule == replace(rule, message=rule.message.strip())


@pytest.mark.parametrize(
    ("length", "replicas", "fits"),
    [
        pytest.param(54, 10, True, id="<54 letters>-worker-9 is 63 long"),
        pytest.param(54, 11, False, id="<54 letters>-worker-10 is 64 long"),
        pytest.param(53, 100, True, id="<53 letters>-worker-99 is 63 long"),
        pytest.param(53, 101, False, id="<53 letters>-worker-100 is 64 long"),
    ],
)
def test_the_name_leaves_room_for_the_last_worker(length: int, replicas: int, fits: bool) -> None:
    path = "spec.pytorchReplicaSpecs.Worker.replicas"
    job = corpus.changed(corpus.job("a" * length), {path: replicas})
    assert (validate_dict(job) == []) is fits
