"""spec.agent as it is read: what no API server can check is refused with its field."""

from typing import Any

import pytest

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.parse import parse_job
from tests.model import corpus

_RULE = "spec.agent.hang.logRules"


def rule(**fields: Any) -> corpus.Job:
    """A job with one log rule."""
    return corpus.changed(corpus.job(), {_RULE: [{"name": "loss", "everySeconds": 9, **fields}]})


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        pytest.param(
            {"pattern": "loss=("}, f"{_RULE}[0].pattern", "must be a Python regular expression", id="no expression"
        ),
        pytest.param(
            {"pattern": "x", "stopPattern": "*"},
            f"{_RULE}[0].stopPattern",
            "must be a Python regular expression",
            id="nor is this",
        ),
        pytest.param(
            {"pattern": "loss=.*", "operator": "gt", "value": 1}, f"{_RULE}[0]", "must have a group", id="no number"
        ),
    ],
)
def test_an_expression_that_could_never_match_is_told(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        parse_job(rule(**fields))
    (problem,) = raised.value.problems
    assert problem.field == field
    assert words in problem.message


def test_what_is_not_said_is_unset() -> None:
    agent = parse_job(corpus.changed(corpus.job(), {"spec.agent": {}})).spec.agent
    assert agent is not None
    assert agent.to_api() == {}
