"""`submit`: files are checked, objects are created, jobs are followed to their end."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob.cluster.errors import AlreadyExists, ApiServerUnreachable, ClusterError, NoPermission, Rejected
from tests.people.calling import call, job_file
from tests.people.fake_cluster import FakeCluster, a_job

SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}


def test_the_objects_of_a_file_are_created_in_their_order(tmp_path: Path) -> None:
    cluster = FakeCluster()
    result = call(cluster, "submit", job_file(tmp_path, SETTINGS))
    assert result.stdout == "configmap/settings created\npytorchjob.kubeflow.org/digits created\n"
    assert result.stderr == "next: pytorchjob status digits; pytorchjob logs digits -f\n"
    assert cluster.changes == [("create", "ConfigMap", "settings"), ("create", "PyTorchJob", "digits")]


def test_standard_input_is_a_file(tmp_path: Path) -> None:
    cluster = FakeCluster()
    assert call(cluster, "submit", "-f", "-", stdin=job_file(tmp_path).read_text()).exit_code == 0
    assert cluster.changes == [("create", "PyTorchJob", "digits")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "job.yaml:", id="half-written YAML is named with its place"),
        pytest.param("", "contains no object", id="nothing"),
        pytest.param("kind: PyTorchJob\napiVersion: kubeflow.org/v1\nspec: {}", "metadata: is required", id="no name"),
        pytest.param("apiVersion: v1\nkind: ConfigMap", "metadata.name: is required", id="another kind without a name"),
    ],
)
def test_a_wrong_file_ends_with_2_before_a_cluster_is_asked(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    result = call(None, "submit", path)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_job_that_two_files_contain_keeps_all_files_from_being_sent(tmp_path: Path) -> None:
    path = job_file(tmp_path)
    result = call(None, "submit", path, path)
    assert (result.exit_code, result.stderr) == (
        2,
        "error: the files contain the PyTorchJob digits twice: rename or remove one of them\n",
    )


def test_a_wrong_job_keeps_all_files_from_being_sent(tmp_path: Path) -> None:
    good = job_file(tmp_path)
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(a_job("bad", workers=0)))
    result = call(None, "submit", good, bad)
    assert (result.exit_code, "Worker.replicas" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("flag", "line", "needs_cluster"),
    [
        pytest.param("--dry-run=client", "pytorchjob.kubeflow.org/digits created (dry run)", False, id="client"),
        pytest.param("--dry-run=server", "pytorchjob.kubeflow.org/digits created (server dry run)", True, id="server"),
        pytest.param("--dry-run", "pytorchjob.kubeflow.org/digits created (server dry run)", True, id="alone"),
    ],
)
def test_a_dry_run_stores_nothing(tmp_path: Path, flag: str, line: str, needs_cluster: bool) -> None:
    cluster = FakeCluster()
    result = call(cluster if needs_cluster else None, "submit", flag, job_file(tmp_path))
    assert (result.stdout, cluster.changes) == (f"{line}\n", [])


CHECKS = [["submit", "--dry-run=server"], ["validate", "--server"]]


@pytest.mark.parametrize("command", CHECKS, ids=" ".join)
@pytest.mark.parametrize(
    ("kind", "error", "status", "named"),
    [
        ("Pod", Rejected("no priority high"), 2, "digits-master-0"),
        ("Service", Rejected("no more services"), 2, "Service digits"),
        ("Pod", NoPermission("ann may not create pods"), 0, "not checked"),
        ("Pod", AlreadyExists("it is there"), 0, ""),
        ("Pod", ApiServerUnreachable("no answer"), 3, "no answer"),
    ],
)
def test_a_server_judges_what_the_operator_would_make(
    tmp_path: Path, command: list[str], kind: str, error: ClusterError, status: int, named: str
) -> None:
    cluster = FakeCluster()
    cluster.fail(f"create {kind}", error)
    result = call(cluster, *command, job_file(tmp_path))
    assert (result.exit_code, cluster.changes) == (status, []), result.output
    assert named in result.stderr


@pytest.mark.parametrize("command", CHECKS, ids=" ".join)
def test_one_pod_of_each_role_is_judged_without_an_owner_and_with_an_account_that_exists(
    tmp_path: Path, command: list[str]
) -> None:
    class Recording(FakeCluster):
        def create(self, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
            asked.append(body)
            return super().create(body, dry_run=dry_run)

    asked: list[dict[str, Any]] = []
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    job = a_job("digits", workers=3)
    del job["status"]
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "trainer"
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump_all([account, job]))
    assert call(Recording(), *command, path).exit_code == 0
    pods = [body for body in asked if body["kind"] == "Pod"]
    assert [pod["metadata"]["name"] for pod in pods] == ["digits-master-0", "digits-worker-0"]
    assert not [pod for pod in pods if "ownerReferences" in pod["metadata"]]
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {"default"}


def test_a_job_that_exists_can_be_validated(tmp_path: Path) -> None:
    assert call(FakeCluster(a_job("digits")), "validate", "--server", job_file(tmp_path)).exit_code == 0


def test_a_dry_run_prints_the_object(tmp_path: Path) -> None:
    result = call(None, "submit", "--dry-run=client", "-o", "yaml", job_file(tmp_path))
    assert yaml.safe_load(result.stdout)["metadata"] == {"name": "digits"}


def test_what_the_server_refuses_is_printed_with_its_fields(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.fail("create", Rejected("the API server refuses the object:\n  spec.a: no", "correct these fields"))
    result = call(cluster, "submit", job_file(tmp_path))
    assert (result.exit_code, "spec.a: no" in result.stderr) == (2, True)


def test_a_job_that_exists_is_not_changed(tmp_path: Path) -> None:
    result = call(FakeCluster(a_job("digits")), "submit", job_file(tmp_path))
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "error: the PyTorchJob digits already exists")
    assert "`pytorchjob delete digits`" in result.stderr


@pytest.mark.parametrize(
    ("stored", "status", "words"),
    [
        pytest.param(SETTINGS, 0, "configmap/settings unchanged", id="the same"),
        pytest.param(SETTINGS | {"data": {"a": "2"}}, 1, "its content differs", id="another content"),
    ],
)
def test_another_kind_that_exists(tmp_path: Path, stored: dict[str, Any], status: int, words: str) -> None:
    result = call(FakeCluster(stored), "submit", job_file(tmp_path, SETTINGS))
    assert (result.exit_code, words in result.output) == (status, True)


def test_the_flag_may_not_contradict_the_file(tmp_path: Path) -> None:
    other = SETTINGS | {"metadata": {"name": "settings", "namespace": "theirs"}}
    path = job_file(tmp_path, other)
    assert call(FakeCluster(), "submit", path).exit_code == 0
    result = call(FakeCluster(), "submit", "-n", "mine", path)
    assert (result.exit_code, "belongs to the namespace theirs, not to mine" in result.stderr) == (2, True)


def in_state(state: str, step: int | None = None) -> dict[str, Any]:
    job = a_job("digits", state=state)
    job["status"] |= {"progress": {"step": step, "percent": 10}} if step else {}
    return job


@pytest.mark.parametrize(
    ("end", "status"), [pytest.param("Succeeded", 0, id="good"), pytest.param("Failed", 1, id="failed")]
)
def test_watch_follows_a_job_to_its_end(tmp_path: Path, end: str, status: int) -> None:
    cluster = FakeCluster()
    states = [in_state("Running"), in_state("Running", 5), in_state("Running", 5), in_state(end, 9)]
    cluster.script(*(lambda job=job: cluster.put(job) for job in states))
    result = call(cluster, "submit", "--watch", job_file(tmp_path))
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (
        status,
        [
            "digits: New, 0/3 ready",
            "digits: Running, 0/3 ready",
            "digits: Running, 0/3 ready, step 5 (10%)",
            f"digits: {end}, 0/3 ready, step 9 (10%)",
        ],
    )


def test_a_job_is_followed_where_the_file_puts_it(tmp_path: Path) -> None:
    cluster = FakeCluster()
    path = job_file(tmp_path)
    body = yaml.safe_load(path.read_text())
    body["metadata"]["namespace"] = "theirs"
    path.write_text(yaml.safe_dump(body))
    assert "next: pytorchjob status digits -n theirs; " in call(cluster, "submit", path).stderr
    assert cluster.namespace == "team"


def test_watch_ends_with_a_deleted_job(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.script(lambda: cluster.remove("PyTorchJob", "digits"))
    result = call(cluster, "submit", "--watch", job_file(tmp_path))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "digits: deleted")


def test_a_time_limit_ends_the_watch_with_124(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.wait_for_more()
    result = call(cluster, "submit", "--watch", "--timeout", "50ms", job_file(tmp_path))
    assert (result.exit_code, "the job continues: pytorchjob status digits" in result.stderr) == (124, True)
