"""`doctor` names the root cause of each seeded fault, and no cause for a healthy job."""

import copy
import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytorchjob.cli import COMMANDS, main
from pytorchjob.cluster import gather
from pytorchjob.cluster.errors import NoPermission, NotInstalled
from pytorchjob.view.causes.cause import Symptom
from pytorchjob.view.causes.table import CAUSES, diagnose
from pytorchjob.view.job_view import make_job_view
from pytorchjob_operator import names
from tests.people import seeds
from tests.people.fake_cluster import NOW, FakeCluster, a_node, timestamp
from tests.people.faults import FAULTS, WELL, Fault, fault

_BY_NAME = {cause.name: cause for cause in CAUSES}


def named(found: Fault) -> list[str]:
    """The root causes that a diagnosis names."""
    cluster = seeds.cluster_with(*found.parts)
    diagnosis = diagnose(gather.gather_job(cluster, seeds.JOB, NOW, deep=True))
    return [finding.cause.name for finding in diagnosis.findings]


def doctor(cluster: FakeCluster, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments], obj=lambda options: cluster)


@pytest.mark.parametrize("seeded", [pytest.param(each, id=each.what) for each in FAULTS])
def test_a_fault_is_named_alone(seeded: Fault) -> None:
    assert named(seeded) == [seeded.cause]


@pytest.mark.parametrize("well", [pytest.param(each, id=each.what) for each in WELL])
def test_a_job_that_is_well_has_no_cause(well: Fault) -> None:
    assert named(well) == []


def test_of_20_seeds_19_are_named_and_none_wrongly() -> None:
    """The bar of the project, counted over all seeds at once."""
    answers = [(each.cause, named(each)) for each in FAULTS]
    right = sum(found == [cause] for cause, found in answers)
    wrong = [(cause, found) for cause, found in answers if found and cause not in found]
    assert len(FAULTS) >= 20
    assert wrong == []
    assert right * 20 >= len(FAULTS) * 19


def test_the_seeds_are_about_most_of_the_table() -> None:
    assert len({each.cause for each in FAULTS}) >= 60
    assert {each.cause for each in FAULTS} <= _BY_NAME.keys()


@pytest.mark.parametrize("seeded", [pytest.param(each, id=each.what) for each in FAULTS])
def test_a_cause_comes_with_evidence_and_a_remedy(seeded: Fault) -> None:
    cluster = seeds.cluster_with(*seeded.parts)
    finding = diagnose(gather.gather_job(cluster, seeds.JOB, NOW, deep=True)).findings[0]
    texts = [finding.why, *(f"{step.text} {step.command}" for step in finding.steps)]
    assert all(evidence.source and evidence.text for evidence in finding.evidence)
    assert finding.evidence
    assert [text for text in texts if re.search(r"\{[a-z_]+\}", text)] == []
    assert finding.steps


@pytest.mark.parametrize("seeded", [pytest.param(each, id=each.what) for each in FAULTS])
def test_status_names_the_cause_too(seeded: Fault) -> None:
    cluster = seeds.cluster_with(*seeded.parts)
    deep = diagnose(gather.gather_job(cluster, seeds.JOB, NOW, deep=True))
    view = make_job_view(gather.gather_job(cluster, seeds.JOB, NOW))
    only_in_logs = seeded.what.startswith("a log of which")
    assert only_in_logs or view.reason == deep.findings[0].why


def young(part: Any) -> Any:
    """The same job, but created nine seconds ago; other parts are as they are."""
    is_job = isinstance(part, dict) and part.get("kind") == names.KIND
    return {**part, "metadata": {**part["metadata"], "creationTimestamp": timestamp(-9)}} if is_job else part


@pytest.mark.parametrize("seeded", [pytest.param(each, id=each.what) for each in FAULTS])
def test_status_names_the_cause_of_a_job_that_is_nine_seconds_old(seeded: Fault) -> None:
    parts = [young(part) for part in seeded.parts]
    deep = diagnose(gather.gather_job(seeds.cluster_with(*parts), seeds.JOB, NOW, deep=True))
    assert [finding.cause.name for finding in deep.findings] == [seeded.cause]
    view = make_job_view(gather.gather_job(seeds.cluster_with(*parts), seeds.JOB, NOW))
    only_in_logs = seeded.what.startswith("a log of which")
    assert only_in_logs or view.reason == deep.findings[0].why


def test_the_answer_has_the_cause_its_evidence_and_the_commands() -> None:
    cluster = seeds.cluster_with(*FAULTS[0].parts)
    answer = doctor(cluster, seeds.JOB)
    assert answer.exit_code == 1
    assert "1. ImageNotFound: The registry has no image registry.example.com/team/train:1" in answer.output
    assert (
        "seen: pod train-master-0, container pytorch waits: ImagePullBackOff: Back-off pulling image" in answer.output
    )
    assert "$ docker push registry.example.com/team/train:1" in answer.output


def test_consequences_are_named_and_not_explained() -> None:
    seeded = next(each for each in FAULTS if each.what == "a backoff limit, and the exception behind it")
    answer = doctor(seeds.cluster_with(*seeded.parts), seeds.JOB)
    assert "Probably follows from it: BackoffLimit" in answer.output
    assert "2." not in answer.output


def test_the_answer_as_json() -> None:
    answer = doctor(seeds.cluster_with(*FAULTS[0].parts), seeds.JOB, "-o", "json")
    found: dict[str, Any] = json.loads(answer.output)["findings"][0]
    assert found["cause"] == "ImageNotFound"
    assert found["pods"] == [seeds.MASTER, seeds.W0]
    assert found["evidence"][0].keys() == {"source", "text"}
    assert found["remedy"][0]["command"] == "docker push registry.example.com/team/train:1"


def test_a_job_that_is_well_ends_with_0() -> None:
    answer = doctor(seeds.cluster_with(*WELL[0].parts), seeds.JOB)
    assert (answer.exit_code, "No cause of a problem was found." in answer.output) == (0, True)


def test_a_missing_job_ends_with_4() -> None:
    answer = doctor(FakeCluster(), "nothing")
    assert (answer.exit_code, answer.stderr.startswith("error: there is no job nothing")) == (4, True)


def well_installed() -> FakeCluster:
    cluster = seeds.cluster_with(seeds.operator(), a_node())
    cluster.serve(gather.VERSION, {"gitVersion": "v1.36.3"})
    cluster.serve(gather.LEASES, lease("2999-01-02T03:04:05Z"))  # the command reads the real clock
    return cluster


def test_a_cluster_that_is_well_ends_with_0() -> None:
    answer = doctor(well_installed())
    assert (answer.exit_code, "Nothing is wrong here." in answer.output) == (0, True), answer.output


def lease(renewed: str) -> dict[str, Any]:
    return {
        "items": [{"metadata": {"name": "pytorchjob-operator"}, "spec": {"holderIdentity": "x", "renewTime": renewed}}]
    }


@pytest.mark.parametrize("arguments", [(), (seeds.JOB,)], ids=["of the cluster", "of a job"])
def test_a_missing_definition_is_named(arguments: tuple[str, ...]) -> None:
    cluster = FakeCluster()
    cluster.fail("jobs", NotInstalled("the cluster does not know PyTorchJobs"))
    cluster.fail("job", NotInstalled("the cluster does not know PyTorchJobs"))
    answer = doctor(cluster, *arguments)
    assert answer.exit_code == 1
    assert "DefinitionMissing: The cluster does not know PyTorchJobs" in answer.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(seeds.no_operator, "OperatorMissing: No operator is installed", id="no operator"),
        pytest.param(seeds.operator(available=0), "0 of 2 pods are available", id="an operator that does not run"),
        pytest.param(
            lambda cluster: cluster.put(a_node("node-2", ready=False)), "not ready: node-2", id="a node that is lost"
        ),
    ],
)
def test_a_cluster_with_a_fault(change: Callable[[FakeCluster], None], words: str) -> None:
    cluster = well_installed()
    change(cluster)
    answer = doctor(cluster)
    assert (answer.exit_code, words in answer.output) == (1, True), answer.output


def test_what_a_person_may_not_read_is_no_fault() -> None:
    cluster = FakeCluster()
    cluster.refuse_nodes()
    cluster.fail("jobs", NoPermission("you may not list pytorchjobs"))
    answer = doctor(cluster)
    assert answer.exit_code == 0
    assert "you may not read nodes" in answer.output


def test_pods_that_may_not_be_read_are_no_fault() -> None:
    counted = {"replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2}}}
    cluster = seeds.cluster_with(seeds.job(seeds.RUNNING, status=counted))
    cluster.fail("pods", NoPermission("you may not list pods"))
    answer = doctor(cluster, seeds.JOB, "-o", "json")
    found = json.loads(answer.output)
    assert (answer.exit_code, found["state"], found["ready"]) == (0, "Running", 3)
    assert found["reason"] == "You may not read the job's pods."


def test_each_cause_has_a_name_a_sign_a_reason_and_a_remedy() -> None:
    assert len(_BY_NAME) == len(CAUSES)
    assert [cause.name for cause in CAUSES if not re.fullmatch(r"([A-Z][a-z]+)+|OOMKilled", cause.name)] == []
    assert [cause.name for cause in CAUSES if not (cause.sign and cause.why and cause.steps)] == []
    assert {cause.symptom for cause in CAUSES} == {*Symptom}


def test_commands_of_remedies_exist() -> None:
    commands = [step.command for cause in CAUSES for step in cause.steps]
    ours = {command.split()[1] for command in commands if command.startswith("pytorchjob ")}
    assert ours <= {*COMMANDS}
    known = ("kubectl ", "helm ", "docker ", "kind ", "pytorchjob ", "pytorchjob-agent ")
    assert [command for command in commands if command and not command.startswith(known)] == []


def test_a_log_is_read_only_where_there_is_no_message() -> None:
    cluster = seeds.cluster_with(
        *fault("", "", seeds.job(), seeds.pod(seeds.W0, seeds.ended(1, "ValueError: x"))).parts
    )
    cluster.write(seeds.W0, "ModuleNotFoundError: No module named 'x'")
    seen = gather.gather_job(cluster, seeds.JOB, NOW, deep=True)
    assert seen.logs == {}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def with_value(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at this place."""
    changed = inside = copy.deepcopy(body)
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


@pytest.mark.parametrize("odd", [None, "x", 7, {}, [None]], ids=repr)
def test_no_value_of_an_object_breaks_the_diagnosis(odd: Any) -> None:
    """A client may write anything into a status."""
    for seeded in FAULTS[::12]:
        seen = gather.gather_job(seeds.cluster_with(*seeded.parts), seeds.JOB, NOW, deep=True)
        for field in ("job", "pods", "events", "nodes"):
            body = getattr(seen, field)
            for path in [found for found in places(body) if field == "job" or len(found) > 1][::3]:
                view = make_job_view(dataclasses.replace(seen, **{field: with_value(body, path, odd)}))
                assert view.to_json()["state"]
