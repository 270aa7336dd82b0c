"""Deprecated fields are warned of in the same words everywhere."""

from pathlib import Path

import pytest
import yaml

from pytorchjob_operator.model.deprecated import DEPRECATED, warnings
from pytorchjob_operator.model.load import load_jobs
from tests.model import corpus

ROOT = Path(__file__).parents[2]
POLICIES = ("manifests/base/admission-policy.yaml", "charts/pytorchjob-operator/templates/admission-policy.yaml")


@pytest.mark.parametrize("path", POLICIES)
def test_the_policy_of_the_api_server_has_the_same_rules(path: str) -> None:
    text = "\n".join(line for line in (ROOT / path).read_text().splitlines() if "{{" not in line)
    policy = next(document for document in yaml.safe_load_all(text) if "Binding" not in document["kind"])
    assert policy["spec"]["validations"] == [
        {"expression": field.cel, "message": field.warning} for field in DEPRECATED
    ]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param({}, [], id="no deprecated field"),
        pytest.param({"nProcPerNode": 2}, [DEPRECATED[0].warning], id="the number of processes"),
    ],
)
def test_a_deprecated_field_is_warned_of(policy: dict[str, int], expected: list[str]) -> None:
    (job,) = load_jobs(yaml.safe_dump(corpus.elastic(**policy)), "x")
    assert list(warnings(job)) == expected
