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
from pytorchjob.view.cluster_view import make_cluster_view
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


@pytest.mark.parametrize("seeded", [pytest.param(each, id=each.what) for each in FAULTS if "hang" in each.what])
def test_a_hang_is_told_with_its_rank_and_pod(seeded: Fault) -> None:
    finding = diagnose(gather.gather_job(seeds.cluster_with(*seeded.parts), seeds.JOB, NOW)).findings[0]
    assert "rank 1 (train-worker-0) hangs" in finding.why
    assert "train.py:12 load()" in finding.why


def test_consequences_are_named_and_not_explained() -> None:
    seeded = next(each for each in FAULTS if each.what == "a backoff limit, and the exception behind it")
    answer = doctor(seeds.cluster_with(*seeded.parts), seeds.JOB)
    assert "Probably follows from it: BackoffLimit" in answer.output
    assert "2." not in answer.output


_GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.244.1.7]:40971"
_ERROR = "ValueError: batch size must be positive"


def failure(name: str, code: int, words: str, rank: str = "", seconds: float = -20, **by_agent: Any) -> Any:
    """A pod whose only process failed; an agent has written the message if it has a rank there."""
    state = seeds.agent("WorkerFailed", code, words, **by_agent) if by_agent else seeds.ended(code, words)
    state["terminated"]["finishedAt"] = timestamp(seconds)
    made = seeds.pod(name, state, phase="Failed")
    made["spec"]["containers"][0] |= {"command": ["python", "x.py"], "env": [{"name": "RANK", "value": rank}]}
    return made


@pytest.mark.parametrize(
    ("pods", "rank"),
    [
        pytest.param(
            (
                failure(seeds.MASTER, 1, _GONE, "0", -22),
                failure(seeds.W0, 1, _ERROR, "1", -20),
                failure(seeds.W1, 1, _GONE, "2", -21),
            ),
            1,
            id="by its environment, though the others ended before it",
        ),
        pytest.param(
            (failure(seeds.MASTER, 1, _GONE, rank=0), failure(seeds.W0, 1, _ERROR, rank=5)), 5, id="by its agent"
        ),
        pytest.param(
            (failure(seeds.W0, 1, f"[rank3]: Traceback\n[rank3]: {_ERROR}"),), 3, id="by the lines that torch writes"
        ),
        pytest.param(
            (
                failure(seeds.W0, 1, _GONE),
                seeds.job(
                    seeds.failed("it failed"),
                    status=seeds.failure("RestartsUsedUp", rank=7, pod=seeds.W1, exitCode=1, message=_ERROR),
                ),
            ),
            7,
            id="by the coordinator's report",
        ),
    ],
)
def test_the_rank_that_failed_first_comes_first(pods: tuple[Any, ...], rank: int) -> None:
    cluster = seeds.cluster_with(seeds.job(seeds.failed("it failed")), *pods)
    command = f"pytorchjob logs train -n team --rank {rank}"
    answer = doctor(cluster, seeds.JOB).output
    assert "1. PythonException: The training script failed in" in answer
    assert next(line.strip() for line in answer.splitlines() if "$ " in line) == f"$ {command}"
    view = make_job_view(gather.gather_job(cluster, seeds.JOB, NOW))
    assert (view.reason.endswith(_ERROR), view.next_command) == (True, command)


def test_a_container_that_was_started_again_has_its_error_in_the_log_before() -> None:
    again = seeds.pod(
        seeds.W0, seeds.container(seeds.running(-5), restarts=1, last=seeds.ended(1, f"[rank1]: {_ERROR}"))
    )
    cluster = seeds.cluster_with(seeds.job(seeds.RUNNING), seeds.pod(seeds.MASTER), again, seeds.pod(seeds.W1))
    steps = diagnose(gather.gather_job(cluster, seeds.JOB, NOW)).findings[0].steps
    commands = [step.command for step in steps if " logs " in step.command]
    assert commands == [
        "pytorchjob logs train -n team --rank 1 --previous",
        "kubectl logs train-worker-0 -n team -c pytorch --previous --tail=100",
    ]


@pytest.mark.parametrize("rank", ["", "; ls"], ids=["no rank", "what is no rank"])
def test_a_rank_that_is_not_known_is_not_named(rank: str) -> None:
    pod = failure(seeds.W0, 1, _ERROR, rank)
    answer = doctor(seeds.cluster_with(seeds.job(seeds.failed("x")), pod), seeds.JOB).output
    assert "--rank" not in answer
    assert "$ kubectl logs train-worker-0 -n team -c pytorch --tail=100" in answer


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


def lease(renewed: str, holder: str = "x") -> dict[str, Any]:
    meta = {"name": "pytorchjob-operator", "namespace": "pytorchjob-system"}
    return {"items": [{"metadata": meta, "spec": {"holderIdentity": holder, "renewTime": renewed}}]}


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


def check_lines(cluster: FakeCluster) -> dict[str, str]:
    """The line of each check, with its next step."""
    checks = json.loads(doctor(cluster, "-o", "json").output)["checks"]
    shown, marks = doctor(cluster).output, {True: "ok", False: "WRONG", None: "-"}
    lines = {}
    for check in checks:
        step = check["next"] or {"text": "", "command": ""}
        assert bool(step["text"]) is (check["ok"] is False)
        assert [text for text in (check["text"], *step.values()) if text not in shown] == []
        lines[check["name"]] = " ".join((marks[check["ok"]], check["text"], *step.values())).strip()
    return lines


_SEE_PODS = "See its pods. kubectl get pods --all-namespaces -l app.kubernetes.io/name=pytorchjob-operator"
_NO_DEPLOYMENT = "WRONG no Deployment with the label app.kubernetes.io/name=pytorchjob-operator"


def ahead(cluster: FakeCluster) -> None:
    """A Lease that is renewed whatever the clock of the test machine is."""
    cluster.serve(gather.LEASES, lease("2999-01-02T03:04:05Z"))


def released(cluster: FakeCluster) -> None:
    cluster.serve(gather.LEASES, lease("2999-01-02T03:04:05Z", holder=""))


def no_lease(cluster: FakeCluster) -> None:
    cluster.serve(gather.LEASES, {"items": []})


def unreadable(*paths: str) -> Callable[[FakeCluster], None]:
    """This person may not read these lists."""

    def hide(cluster: FakeCluster) -> None:
        for path in paths:
            cluster.hide(path)

    return hide


@pytest.mark.parametrize(
    ("changes", "check", "line"),
    [
        pytest.param(
            [seeds.no_operator], "operator", f"{_NO_DEPLOYMENT} See OperatorMissing below.", id="no Deployment"
        ),
        pytest.param(
            [seeds.uninstalled, ahead],
            "leader",
            "WRONG x, renewed 0 s ago; the operator has no pod any more See OperatorMissing below.",
            id="a Lease that an operator left when it was uninstalled",
        ),
        pytest.param(
            [seeds.uninstalled, ahead, seeds.v1()],
            "leader",
            "WRONG x, renewed 0 s ago; the operator has no pod any more See ServedByTrainingOperator below.",
            id="a Lease that an operator left when jobs went back to v1",
        ),
        pytest.param(
            [seeds.uninstalled, ahead, unreadable(gather.OPERATOR_PODS)],
            "leader",
            "ok x, renewed 0 s ago",
            id="a Lease of pods that this person may not read",
        ),
        pytest.param(
            [released], "leader", f"WRONG no pod, renewed 0 s ago {_SEE_PODS}", id="a Lease that was released"
        ),
        pytest.param(
            [no_lease],
            "leader",
            f"WRONG no Lease: no operator has ever led {_SEE_PODS}",
            id="an operator without one",
        ),
        pytest.param(
            [lambda cluster: cluster.put(a_node("node-2", ready=False))],
            "nodes",
            "WRONG 1 of 2 are ready; not ready: node-2 Read their conditions. kubectl describe nodes node-2",
            id="a node that is lost",
        ),
        pytest.param(
            [seeds.v1()],
            "v1",
            "ok kubeflow/training-operator: 1 of 1 pods available, serves PyTorchJobs",
            id="v1",
        ),
        pytest.param(
            [seeds.v1(available=0, replicas=0)],
            "v1",
            "ok kubeflow/training-operator: 0 of 0 pods available, stopped",
            id="v1 that was stopped",
        ),
        pytest.param(
            [seeds.v1("--enable-scheme=tfjob")],
            "v1",
            "ok kubeflow/training-operator: 1 of 1 pods available, serves other kinds only",
            id="v1 for other kinds",
        ),
        pytest.param(
            [unreadable(gather.DEPLOYMENTS, gather.V1_DEPLOYMENTS)],
            "operator",
            "- you may not read Deployments of all namespaces, neither this operator's nor training-operator v1's",
            id="Deployments that this person may not read",
        ),
    ],
)
def test_a_check_that_is_wrong_has_a_next_step(
    changes: list[Callable[[FakeCluster], None]], check: str, line: str
) -> None:
    cluster = well_installed()
    for change in changes:
        change(cluster)
    assert check_lines(cluster)[check] == line


@pytest.mark.parametrize(
    ("created", "seconds", "words"),
    [
        pytest.param(-3, 15, "renewed 1 s ago; it begins in 12 s, since no operator has led before", id="a new Lease"),
        pytest.param(-16, 15, "renewed 1 s ago", id="a Lease that is older than its duration"),
        pytest.param(-3, "15", "renewed 1 s ago", id="a Lease with an odd duration"),
    ],
)
def test_a_leader_that_still_waits_says_when_it_begins(created: float, seconds: Any, words: str) -> None:
    cluster, made = well_installed(), seeds.lease(-1)
    made["metadata"]["creationTimestamp"] = timestamp(created)
    made["spec"]["leaseDurationSeconds"] = seconds
    cluster.serve(gather.LEASES, {"items": [made]})
    checks = {check.name: check for check in make_cluster_view(gather.gather_cluster(cluster, NOW), "1").checks}
    assert (checks["leader"].ok, checks["leader"].text) == (True, f"pytorchjob-operator-abc, {words}")


def test_after_the_way_back_v1_is_named_as_the_operator_that_serves() -> None:
    cluster = well_installed()
    seeds.uninstalled(cluster)
    seeds.v1()(cluster)
    answer = doctor(cluster)
    assert answer.exit_code == 1
    assert "training-operator v1 (kubeflow/training-operator) serves PyTorchJobs, and this operator does not run." in (
        answer.output
    )
    assert "docs/migrating.md" in answer.output
    assert "OperatorMissing" not in answer.output


@pytest.mark.parametrize(
    ("ours", "v1", "found"),
    [
        pytest.param(seeds.operator(), seeds.v1(), True, id="all namespaces"),
        pytest.param(seeds.operator(namespaces="a,b"), seeds.v1("--namespace", "b"), True, id="a namespace of both"),
        pytest.param(seeds.operator(namespaces="a,b"), seeds.v1("--namespace=c"), False, id="namespaces of their own"),
        pytest.param(seeds.operator(available=0), seeds.v1(), False, id="an operator that does not run yet"),
    ],
)
def test_two_operators_of_the_same_jobs_are_named_with_the_way_to_stop_each(
    ours: Callable[[FakeCluster], None], v1: Callable[[FakeCluster], None], found: bool
) -> None:
    cluster = well_installed()
    for change in (ours, ahead, v1):
        change(cluster)
    text = doctor(cluster).output
    assert ("TwoOperators: Two operators serve the same jobs" in text) is found
    assert ("$ kubectl -n kubeflow scale deployment training-operator --replicas=0" in text) is found
    assert ("$ helm uninstall pytorchjob-operator --namespace pytorchjob-system" in text) is found


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
