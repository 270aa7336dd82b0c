"""The rules for hangs: what the operator writes, the agent reads; what is wrong is named."""

import json

import pytest

from pytorchjob_agent.contract.hang_rules import HANG, Comparison, HangRules, LogRule
from pytorchjob_agent.contract.reading import ContractError

FULL = HangRules(
    progress_seconds=30.0,
    first_progress_seconds=600.0,
    idle_seconds=300.0,
    log_rules=(
        LogRule("loss", r"loss=(\S+)", 120.0, 60.0, "done", Comparison.GT, 9.5, 3),
        LogRule("xid", "NVRM: Xid", fault_on_match=True),
    ),
)


@pytest.mark.parametrize("rules", [HangRules(), HangRules(0.0, 0.0), FULL], ids=["nothing set", "all off", "all set"])
def test_what_is_written_is_read(rules: HangRules) -> None:
    assert HangRules.from_json(rules.to_json()) == rules
    assert HangRules.from_env({HANG: rules.to_json()}) == rules


def test_without_the_variable_nothing_is_set() -> None:
    assert HangRules.from_env({}) == HangRules.from_env({HANG: ""}) == HangRules()
    assert HangRules().first_limit == 1200


@pytest.mark.parametrize(("idle", "limit"), [(None, 120.0), (0.0, 0.0), (600.0, 600.0)])
def test_idleness_is_judged_unless_it_is_switched_off(idle: float | None, limit: float) -> None:
    rules = HangRules(idle_seconds=idle)
    assert rules.still_limit == limit
    assert HangRules.from_json(rules.to_json()) == rules


def test_the_fields_are_those_of_the_jobs_spec() -> None:
    rule = {
        "name": "loss",
        "pattern": "loss=(.*)",
        "startSeconds": 120,
        "everySeconds": 60,
        "stopPattern": "done",
        "operator": "gt",
        "value": 9,
        "points": 3,
        "faultOnMatch": False,
    }
    spec = {"progressSeconds": 30, "firstProgressSeconds": 600, "idleSeconds": 300, "logRules": [rule]}
    assert HangRules.from_json(json.dumps(spec)).log_rules[0].points == 3


def test_what_a_newer_operator_adds_and_null_are_left_alone() -> None:
    text = '{"newer": 1, "idleSeconds": null, "logRules": [{"name": "a", "pattern": "b", "more": {}}]}'
    assert HangRules.from_json(text) == HangRules(log_rules=(LogRule("a", "b"),))


def a_rule(**fields: object) -> dict[str, object]:
    return {"logRules": [{"name": "a", "pattern": "b", **fields}]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param([], "PYTORCHJOB_HANG: '[]' is not an object", id="a list"),
        pytest.param({"progressSeconds": "30"}, "progressSeconds: '30' is wrong: expected seconds", id="a text"),
        pytest.param({"progressSeconds": True}, "progressSeconds: 'True'", id="a switch"),
        pytest.param({"idleSeconds": -1}, "idleSeconds: '-1'", id="below 0"),
        pytest.param({"idleSeconds": 1e9}, "from 0 (no limit) to 2592000", id="beyond 30 days"),
        pytest.param({"logRules": {}}, "logRules: '{}' is wrong: expected a list", id="rules that are no list"),
        pytest.param({"logRules": [{}] * 17}, "at most 16 entries", id="too many rules"),
        pytest.param({"logRules": ["loss"]}, "logRules[0]: 'loss' is not an object", id="a rule that is a text"),
        pytest.param({"logRules": [{"name": "a"}]}, "logRules[0]: expected an object with a name and", id="no pattern"),
        pytest.param(a_rule(name=""), "logRules[0]: name: '' is wrong: expected a text of 1 to 63", id="no name"),
        pytest.param(a_rule(pattern="("), "pattern: '(' is wrong: expected a regular expression", id="bad pattern"),
        pytest.param(a_rule(stopPattern="["), "stopPattern: '['", id="bad stop pattern"),
        pytest.param(a_rule(operator="<", value=1), "operator: '<' is wrong: expected one of lt, gt", id="operator"),
        pytest.param(a_rule(operator="lt", value=1), "a group around the number", id="a comparison without group"),
        pytest.param(a_rule(pattern="(b)", operator="lt"), "operator and value go together", id="nothing to compare"),
        pytest.param(a_rule(value=1), "operator and value go together", id="a value for nothing"),
        pytest.param(a_rule(points=0), "points: '0' is wrong: expected a number from 1", id="no points"),
        pytest.param(a_rule(faultOnMatch="yes"), "faultOnMatch: 'yes' is wrong: expected true or false", id="yes"),
    ],
)
def test_what_is_wrong_is_named(data: object, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        HangRules.from_json(json.dumps(data))
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["{", "x" * 300_000, "[" * 100_000], ids=["half", "too long", "too deep"])
def test_what_is_no_json_is_named(text: str) -> None:
    with pytest.raises(ContractError, match=HANG):
        HangRules.from_json(text)
