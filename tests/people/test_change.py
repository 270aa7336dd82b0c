"""`scale`, `suspend`, `resume`, `restart`, `delete`: their changes and their refusals."""

from typing import Any

import pytest

from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod

QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}


def workers(count: int) -> dict[str, Any]:
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}}


def suspend(value: bool) -> dict[str, Any]:
    return {"spec": {"runPolicy": {"suspend": value}}}


@pytest.mark.parametrize("arguments", [["4"], ["--replicas", "4"], ["--replicas=4"]])
def test_a_job_is_scaled(arguments: list[str]) -> None:
    cluster = FakeCluster(a_job())
    result = call(cluster, "scale", "digits", *arguments)
    assert result.stdout == "pytorchjob.kubeflow.org/digits scaled from 2 to 4 workers\n"
    assert cluster.changes == [("patch", "digits", workers(4))]


def test_a_job_that_has_that_many_workers_is_not_scaled() -> None:
    result = call(FakeCluster(a_job("digits")), "scale", "digits", "2")
    assert result.stdout == "pytorchjob.kubeflow.org/digits has 2 workers already\n"


def test_a_dry_run_scales_nothing() -> None:
    cluster = FakeCluster(a_job())
    assert "(server dry run)" in call(cluster, "scale", "digits", "4", "--dry-run").stdout
    assert cluster.changes == []


def test_kueue_stops_a_job_that_is_scaled() -> None:
    job = a_job()
    job["metadata"]["labels"] = QUEUE
    assert "Kueue's queue team-a" in call(FakeCluster(job), "scale", "digits", "4").stderr


@pytest.mark.parametrize(
    ("command", "job", "status", "sentence"),
    [
        pytest.param(
            ["scale", "digits", "5"], a_job(state="Failed"), 1, "has ended (Failed)", id="a job that has ended"
        ),
        pytest.param(
            ["scale", "digits", "5"],
            a_job(elasticPolicy={"minReplicas": 2, "maxReplicas": 4}),
            2,
            "the elasticPolicy of digits allows 2 to 4 workers, got 5",
            id="more than an elastic job may have",
        ),
        pytest.param(["scale", "digit", "5"], a_job(), 4, "there is no job digit", id="a job that does not exist"),
        pytest.param(["suspend", "digit"], a_job(), 4, "there is no job digit", id="suspend what does not exist"),
        pytest.param(
            ["resume", "digits"], a_job(state="Succeeded"), 1, "cannot be resumed", id="resume what has ended"
        ),
        pytest.param(
            ["restart", "digits"], a_job(runPolicy={"suspend": True}), 1, "is suspended", id="restart what is suspended"
        ),
        pytest.param(
            ["restart", "digits", "--replica", "worker-9"],
            a_job(),
            2,
            "has no pod worker-9",
            id="restart a pod that is not",
        ),
    ],
)
def test_what_cannot_be_changed_is_explained(
    command: list[str], job: dict[str, Any], status: int, sentence: str
) -> None:
    cluster = FakeCluster(job, a_pod("digits", "worker-0"))
    result = call(cluster, *command)
    assert (result.exit_code, cluster.changes) == (status, [])
    assert sentence in result.stderr
    assert "next: " in result.stderr


def test_a_job_without_workers_cannot_be_scaled() -> None:
    job = a_job()
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert call(FakeCluster(job), "scale", "digits", "2").exit_code == 2


def test_suspend_and_resume() -> None:
    cluster = FakeCluster(a_job())
    assert call(cluster, "suspend", "digits").stdout == "pytorchjob.kubeflow.org/digits suspended\n"
    assert "is suspended already" in call(cluster, "suspend", "digits").stdout
    assert call(cluster, "resume", "digits").stdout == "pytorchjob.kubeflow.org/digits resumed\n"
    assert "is not suspended" in call(cluster, "resume", "digits").stdout
    assert cluster.changes == [("patch", "digits", suspend(True)), ("patch", "digits", suspend(False))]


def test_a_restart_waits_until_the_operator_has_suspended_the_job() -> None:
    cluster = FakeCluster(a_job())
    seen: list[int] = []

    def suspended() -> None:
        seen.append(len(cluster.changes))
        job = a_job(state="Suspended", runPolicy={"suspend": True})
        cluster.put(job)

    cluster.script(suspended)
    result = call(cluster, "restart", "digits")
    assert (result.exit_code, seen) == (0, [1])
    assert cluster.changes == [("patch", "digits", suspend(True)), ("patch", "digits", suspend(False))]


def test_a_restart_without_an_operator_resumes_the_job() -> None:
    cluster = FakeCluster(a_job())
    cluster.wait_for_more()
    result = call(cluster, "restart", "digits", "--timeout", "50ms")
    assert (result.exit_code, "the operator has not suspended the job" in result.stderr) == (124, True)
    assert cluster.changes[-1] == ("patch", "digits", suspend(False))


@pytest.mark.parametrize(("policy", "status"), [("OnFailure", 0), ("Never", 2)])
def test_the_pods_of_a_job_of_kueue_are_deleted_unless_that_ends_the_job(policy: str, status: int) -> None:
    job = a_job()
    job["metadata"]["labels"] = QUEUE
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = policy
    cluster = FakeCluster(job, a_pod("digits", "master-0"), a_pod("digits", "worker-0"))
    assert call(cluster, "restart", "digits").exit_code == status
    deleted = [("delete", "pods/digits-worker-0"), ("delete", "pods/digits-master-0")]
    assert cluster.changes == (deleted if status == 0 else [])


def test_a_pod_is_restarted_alone() -> None:
    cluster = FakeCluster(a_job(), a_pod("digits", "worker-0"), a_pod("digits", "worker-1"))
    result = call(cluster, "restart", "digits", "--replica", "worker-1")
    assert (result.exit_code, cluster.changes) == (0, [("delete", "pods/digits-worker-1")])


def test_a_pod_whose_end_would_end_the_job_is_not_deleted() -> None:
    job = a_job()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    cluster = FakeCluster(job, a_pod("digits", "worker-0"))
    result = call(cluster, "restart", "digits", "--replica", "worker-0")
    assert (result.exit_code, cluster.changes, "restartPolicy Never" in result.stderr) == (2, [], True)


def test_jobs_are_deleted_and_their_end_is_awaited() -> None:
    cluster = FakeCluster(a_job("a"), a_job("b"), a_job("c"))
    result = call(cluster, "delete", "a", "b")
    assert result.stdout == 'pytorchjob.kubeflow.org "a" deleted\npytorchjob.kubeflow.org "b" deleted\n'
    assert [job["metadata"]["name"] for job in cluster.jobs()] == ["c"]


def test_a_missing_job_does_not_keep_the_others() -> None:
    cluster = FakeCluster(a_job("abc"), a_job("b"))
    result = call(cluster, "delete", "abd", "b", "--wait=false")
    assert (result.exit_code, cluster.changes) == (4, [("delete", "b")])
    assert "next: did you mean abc?" in result.stderr


@pytest.mark.parametrize("flags", [["--all"], ["-l", "team=x"]])
def test_jobs_are_chosen_by_label_or_all(flags: list[str]) -> None:
    job = a_job("a")
    job["metadata"]["labels"] = {"team": "x"}
    cluster = FakeCluster(job)
    assert call(cluster, "delete", *flags).exit_code == 0
    assert call(cluster, "delete", *flags).stderr == "No jobs found in the namespace team.\n"


MEMORY = {"checkpoint": {"directory": "/checkpoints", "memory": "1Gi"}}


@pytest.mark.parametrize("command", [["suspend"], ["restart"]])
@pytest.mark.parametrize("queue", [{}, QUEUE])
@pytest.mark.parametrize(
    ("agent", "volume", "warns"),
    [
        pytest.param(MEMORY, None, True, id="saves in memory alone"),
        pytest.param({}, None, True, id="no volume"),
        pytest.param({}, {"persistentVolumeClaim": {"claimName": "shared"}}, False, id="a volume of the script's"),
    ],
)
def test_what_is_lost_with_the_pods_is_said_before(
    command: list[str], queue: dict[str, str], agent: dict[str, Any], volume: dict[str, Any] | None, warns: bool
) -> None:
    job = a_job(agent=agent)
    job["metadata"]["labels"] = queue
    if volume is not None:
        for role in job["spec"]["pytorchReplicaSpecs"].values():
            pod = role["template"]["spec"]
            pod["volumes"] = [{"name": "data", **volume}]
            pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    cluster = FakeCluster(job)
    cluster.wait_for_more()
    limit = ["--timeout", "50ms"] if command == ["restart"] else []
    assert ("warning: " in call(cluster, *command, "digits", *limit).stderr) is warns
