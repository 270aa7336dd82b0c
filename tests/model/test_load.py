import pytest
import yaml

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.load import load_jobs
from tests.model import corpus


def text(*jobs: corpus.Job) -> str:
    return yaml.safe_dump_all(jobs)


def test_every_document_becomes_a_job() -> None:
    jobs = load_jobs(text(corpus.job("a"), corpus.elastic("b")), "job.yaml")
    assert [job.metadata.name for job in jobs] == ["a", "b"]


def test_json_is_yaml_too() -> None:
    assert load_jobs(yaml.safe_dump(corpus.job(), default_flow_style=True), "job.json")[0].metadata.name == "digits"


def test_the_field_is_named_as_the_api_server_names_it() -> None:
    bad = corpus.changed(corpus.job(), {"spec.pytorchReplicaSpecs.Worker.replicas": 0})
    with pytest.raises(InvalidJob) as caught:
        load_jobs(text(bad), "job.yaml")
    assert str(caught.value) == "spec.pytorchReplicaSpecs.Worker.replicas: must be at least 1, got 0"


def test_the_document_is_named_when_there_are_several() -> None:
    bad = corpus.changed(corpus.job(), {"spec.nprocPerNode": "0"})
    with pytest.raises(InvalidJob, match=r"job\.yaml, document 2 \(default/digits\): spec\.nprocPerNode: must be a"):
        load_jobs(text(corpus.job(), bad), "job.yaml")


def test_a_document_that_is_no_object_is_named_without_a_field() -> None:
    with pytest.raises(InvalidJob) as caught:
        load_jobs(f"{text(corpus.job())}---\n- 1\n", "job.yaml")
    assert str(caught.value) == "job.yaml, document 2: must be a PyTorchJob object, got [1]"


def test_a_name_may_be_given_once_in_a_namespace() -> None:
    with pytest.raises(InvalidJob, match=r"job\.yaml: contains the PyTorchJob a twice: rename or remove one of them"):
        load_jobs(text(corpus.job("a"), corpus.job("a")), "job.yaml")
    other = corpus.changed(corpus.job("a"), {"metadata.namespace": "other"})
    assert len(load_jobs(text(corpus.job("a"), other), "job.yaml")) == 2


def test_the_list_that_kubectl_prints_is_its_items() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [corpus.job("a"), corpus.elastic("b")]}
    assert [job.metadata.name for job in load_jobs(yaml.safe_dump(listed), "-")] == ["a", "b"]


@pytest.mark.parametrize("items", [None, 3, [], [None]])
def test_a_list_of_no_jobs_is_refused(items: object) -> None:
    with pytest.raises(InvalidJob, match="PyTorchJob"):
        load_jobs(yaml.safe_dump({"kind": "List", "items": items}), "-")


def test_what_is_null_is_not_there() -> None:
    nulls = {"spec.runPolicy.suspend": None, "spec.elasticPolicy": None, "spec.pytorchReplicaSpecs.Master": None}
    job = load_jobs(text(corpus.changed(corpus.job(), nulls)), "job.yaml")[0]
    assert not job.spec.run_policy.suspend
    assert job.spec.elastic_policy is job.spec.pytorch_replica_specs.master is None


@pytest.mark.parametrize("nothing", ["", "# only words", "---\n---\n"])
def test_a_file_without_an_object_is_refused(nothing: str) -> None:
    with pytest.raises(InvalidJob, match=r"job\.yaml: contains no object; expected a PyTorchJob"):
        load_jobs(nothing, "job.yaml")
