import pytest
from hypothesis import given, settings

from pytorchjob_operator.model.check import validate_dict
from tests.model import corpus
from tests.model.mutants import mutants


@pytest.mark.parametrize("job", corpus.GOOD.values(), ids=corpus.GOOD.keys())
def test_accepted(job: corpus.Job) -> None:
    assert validate_dict(job) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        pytest.param("kind", "TFJob", "must be PyTorchJob, got 'TFJob'", id="another kind"),
        pytest.param("apiVersion", "v2", "must be kubeflow.org/v1, got 'v2'", id="another version"),
        pytest.param("spec.pytorchReplicaSpecs.Worker.replicas", 0, "must be at least 1, got 0", id="too few"),
        pytest.param("spec.runPolicy.suspend", "x", "must be true or false, got 'x'", id="wrong type"),
        pytest.param("spec.runPolicy.cleanPodPolicy", "X", "must be one of None, Running, All, got 'X'", id="enum"),
        pytest.param("spec.runPolicy.cleanPodPolicy", "running", "must be one of None, Running, All, got 'running'; did"
                     " you mean Running?", id="a value in another case"),
        pytest.param("spec.pytorchReplicaSpecs.Worker.restartPolicy", "OnFail", "must be one of Always, OnFailure,"
                     " Never, ExitCode, got 'OnFail'; did you mean OnFailure?", id="half a value"),
        pytest.param("spec.nprocPerNode", 2, "must be a string, got 2: quote it", id="a number for a string"),
        pytest.param("spec.nprocPerNode", True, "must be a string, got true: quote it", id="a truth for a string"),
        pytest.param("spec.pytorchReplicaSpecs.Worker.replicas", "3", "must be an integer, got '3': write it without"
                     " quotes, 3", id="a string for a number"),
        pytest.param("spec.runPolicy.suspend", "true", "must be true or false, got 'true': write it without quotes,"
                     " true", id="a string for a truth"),
        pytest.param("spec.pytorchReplicaSpecs.Worker", "template", "must be a map, got 'template': a colon is missing"
                     " after template", id="a key that was not finished"),
        pytest.param("spec.nprocPernode", "2", "unknown field; did you mean nprocPerNode?", id="a slip is recognised"),
        pytest.param("spec.elasticPolicy", [], "must be a map, got []", id="a list for a map"),
    ],
)  # fmt: skip
def test_the_message_says_what_would_be_right(path: str, value: object, message: str) -> None:
    assert validate_dict(corpus.changed(corpus.job(), {path: value})) == [(path, message)]


@pytest.mark.parametrize(
    ("path", "slip", "value"),
    [
        pytest.param("spec", "specs", {}, id="the spec"),
        pytest.param("spec.pytorchReplicaSpecs", "pytorchReplicaSpec", {}, id="the roles"),
        pytest.param("spec.pytorchReplicaSpecs.Worker.template.spec.containers.0.image", "imgae", "x", id="an image"),
    ],
)
def test_a_misspelled_field_is_not_also_a_missing_one(path: str, slip: str, value: object) -> None:
    parent, _, right = path.rpartition(".")
    wrong = f"{parent}.{slip}".lstrip(".")
    (problem,) = validate_dict(corpus.changed(corpus.job(), {path: corpus.GONE, wrong: value}))
    assert (problem.field.endswith(slip), problem.message) == (True, f"unknown field; did you mean {right}?")


def test_problems_come_in_the_order_of_the_text() -> None:
    unknown = {f"spec.pytorchReplicaSpecs.{role}.{field}": 1 for role in ("Worker", "Master") for field in "zyx"}
    fields = [problem.field for problem in validate_dict(corpus.changed(corpus.job(), unknown))]
    job = corpus.changed(corpus.job(), unknown)
    roles = list(job["spec"]["pytorchReplicaSpecs"])
    assert fields == [f"spec.pytorchReplicaSpecs.{role}.{field}" for role in roles for field in "zyx"]


def test_every_problem_is_listed() -> None:
    job = corpus.changed(corpus.job("BAD"), {"spec.nprocPerNode": "0", "spec.runPolicy.backoffLimit": -1})
    fields = {problem.field for problem in validate_dict(job)}
    assert fields == {"metadata.name", "spec.nprocPerNode", "spec.runPolicy.backoffLimit"}


@pytest.mark.parametrize("thing", [None, [], "text", 3], ids=repr)
def test_what_is_no_object_is_said_to_be_none(thing: object) -> None:
    assert "must be a PyTorchJob object" in validate_dict(thing)[0].message


@settings(deadline=None)
@given(mutants())
def test_no_job_breaks_the_judge(job: corpus.Job) -> None:
    assert all(problem.field and problem.message for problem in validate_dict(job))
