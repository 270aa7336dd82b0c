"""`top`: what pods use next to what they asked for, and the sentences where there is nothing to show."""

import json
from typing import Any

import pytest

from pytorchjob.cluster.api import Object
from pytorchjob.cluster.errors import ApiServerUnreachable
from pytorchjob.cluster.metrics import METRICS, SERVICE
from pytorchjob.view.usage import Amounts, pod_usages, total
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod

_SELECTOR = "pods?labelSelector=training.kubeflow.org%2Fjob-name"
OF_JOB = f"{METRICS}/namespaces/team/{_SELECTOR}%3Ddigits"
OF_SPACE = f"{METRICS}/namespaces/team/{_SELECTOR}"
PODS = f"/api/v1/namespaces/team/{_SELECTOR}"
MEBIBYTE = 1 << 20


def pod(replica: str, requests: Object | None = None, limits: Object | None = None, **fields: Any) -> Object:
    body = a_pod("digits", replica, **fields)
    body["spec"]["containers"][0]["resources"] = {"requests": requests or {}, "limits": limits or {}}
    return body


def used(name: str, cpu: str = "250m", memory: str = "100Mi", namespace: str = "team", **more: str) -> Object:
    usage = {"cpu": cpu, "memory": memory, **more}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "window": "30s",
        "containers": [{"name": "pytorch", "usage": usage}],
    }


MASTER = pod("master-0", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "8"})
WORKER = pod("worker-0", {"cpu": "1"}, {"memory": "512Mi"})


def a_cluster(*metrics: Object, progress: Object | None = None) -> FakeCluster:
    job = a_job()
    job["status"]["progress"] = progress or {}
    cluster = FakeCluster(job, MASTER, WORKER)
    cluster.serve(METRICS, {"resources": []})
    cluster.serve(OF_JOB, {"items": list(metrics)})
    cluster.serve(OF_SPACE, {"items": list(metrics)})
    cluster.serve(PODS, {"items": [*cluster.pods("digits")]})
    return cluster


BOTH = (used("digits-master-0", "1500000000n", "1048577Ki"), used("digits-worker-0"))


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_job_shows_its_step_rate_and_a_line_for_each_pod() -> None:
    progress = {"step": 120, "total": 500, "percent": 24, "stepsPerSecond": 3.2}
    lines = call(a_cluster(*BOTH, progress=progress), "top", "digits").stdout.splitlines()
    assert lines[0] == "digits: Running, 24%, step 120/500, 3.2 steps/s"
    assert lines[1].split("   ")[0] == "POD"
    assert cells("\n".join(lines[2:])) == [
        ["digits-master-0", "node-1", "1500m", "500m", "2000m", "1025Mi", "1024Mi", "2048Mi", "-/8"],
        ["digits-worker-0", "node-1", "250m", "1000m", "-", "100Mi", "512Mi", "512Mi", "-"],
    ]


def test_all_jobs_of_a_namespace() -> None:
    cluster = a_cluster(*BOTH, progress={"step": 3, "stepsPerSecond": 3.25})
    cluster.put(a_job("other"))
    (row,) = cells(call(cluster, "top", "--no-headers").stdout)
    assert row == ["digits", "2", "1750m", "1500m", "-", "1125Mi", "1536Mi", "2560Mi", "-/8", "3.25"]


def test_all_namespaces() -> None:
    cluster = a_cluster()
    cluster.serve(f"/api/v1/{_SELECTOR}", {"items": [*cluster.pods("digits")]})
    cluster.serve(f"{METRICS}/{_SELECTOR}", {"items": [*BOTH]})
    lines = cells(call(cluster, "top", "-A").stdout)
    assert (lines[0][:2], lines[1][:2]) == (["NAMESPACE", "NAME"], ["team", "digits"])


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        pytest.param([], ["digits-master-0", "digits-worker-0"], id="in their order"),
        pytest.param(["--sort-by", "cpu"], ["digits-worker-0", "digits-master-0"], id="by CPU"),
        pytest.param(["--sort-by", "memory"], ["digits-master-0", "digits-worker-0"], id="by memory"),
        pytest.param(["--sum"], ["digits-master-0", "digits-worker-0", "total"], id="with a sum"),
    ],
)
def test_the_order_of_lines(arguments: list[str], names: list[str]) -> None:
    cluster = a_cluster(used("digits-master-0", "1", "2Gi"), used("digits-worker-0", "2", "1Gi"))
    lines = cells(call(cluster, "top", "digits", "--no-headers", *arguments).stdout)
    assert [line[0] for line in lines[1:]] == names


def test_containers_have_lines_of_their_own() -> None:
    body = pod("worker-0", {"cpu": "1"})
    body["spec"]["initContainers"] = [
        {"name": "mesh", "restartPolicy": "Always", "resources": {"limits": {"cpu": "100m"}}},
        {"name": "setup", "resources": {"limits": {"cpu": "9"}}},
    ]
    metrics = used("digits-worker-0")
    metrics["containers"].append({"name": "mesh", "usage": {"cpu": "5m", "memory": "9Mi"}})
    cluster = FakeCluster(a_job(), body)
    cluster.serve(OF_JOB, {"items": [metrics]})
    lines = cells(call(cluster, "top", "digits", "--containers", "--no-headers").stdout)[1:]
    assert [line[1:5] for line in lines] == [
        ["pytorch", "node-1", "250m", "1000m"],
        ["mesh", "node-1", "5m", "100m"],
    ]
    (whole,) = cells(call(cluster, "top", "digits", "--no-headers").stdout)[1:]
    assert whole[2:5] == ["255m", "1100m", "-"]


def test_values_for_programs() -> None:
    metrics = used("digits-master-0", "1500m", "1Gi", **{"nvidia.com/gpu": "6"})
    found = json.loads(call(a_cluster(metrics, progress={"stepsPerSecond": 2.0}), "top", "digits", "-o", "json").stdout)
    assert found[0] == {
        "namespace": "team",
        "job": "digits",
        "name": "digits-master-0",
        "container": None,
        "node": "node-1",
        "pods": 1,
        "used": {"cpu": 1.5, "memory": 1 << 30, "gpu": 6},
        "requested": {"cpu": 0.5, "memory": 1 << 30, "gpu": 8},
        "limit": {"cpu": 2, "memory": 2 << 30, "gpu": 8},
        "stepsPerSecond": 2,
    }
    assert found[1]["used"] == {"cpu": None, "memory": None, "gpu": None}


def test_a_pod_that_has_not_been_measured_yet() -> None:
    result = call(a_cluster(used("digits-master-0")), "top", "digits", "--no-headers")
    assert cells(result.stdout)[2][2] == "-"
    assert "has no value yet" in result.stderr


def test_a_metrics_server_that_knows_accelerators() -> None:
    metrics = used("digits-master-0", **{"nvidia.com/gpu": "6"})
    assert cells(call(a_cluster(metrics), "top", "digits", "--no-headers").stdout)[1][-1] == "6/8"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["digits"], "The job digits has no pods that run."), ([], "No jobs with pods that run found.")],
)
def test_nothing_runs(arguments: list[str], words: str) -> None:
    cluster = a_cluster()
    for replica in ("master-0", "worker-0"):
        cluster.put(pod(replica, phase="Succeeded"))
    cluster.serve(PODS, {"items": [*cluster.pods("digits")]})
    result = call(cluster, "top", *arguments)
    assert (result.exit_code, words in result.stderr) == (0, True)


@pytest.mark.parametrize("arguments", [["top", "digits"], ["top"]])
def test_without_a_metrics_server(arguments: list[str]) -> None:
    cluster = FakeCluster(a_job(), MASTER)
    cluster.serve(PODS, {"items": []})
    result = call(cluster, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    error, step = result.stderr.splitlines()
    assert error == "error: the cluster has no metrics server: its API server does not serve metrics.k8s.io"
    assert step.startswith("next: an administrator has to install metrics-server; `pytorchjob progress JOB` shows ")


def test_a_metrics_server_that_does_not_answer() -> None:
    cluster = FakeCluster(a_job(), MASTER)
    cluster.fail("read", ApiServerUnreachable("the API server fails with 503: x", "repeat"))
    condition = {"type": "Available", "status": "False", "message": "failing or missing response"}
    cluster.serve(SERVICE, {"status": {"conditions": [condition]}})
    result = call(cluster, "top", "digits")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the metrics server does not answer: failing or missing response\nnext: ")


def test_an_api_server_that_does_not_answer() -> None:
    cluster = FakeCluster(a_job(), MASTER)
    cluster.fail("read", ApiServerUnreachable("the API server is gone", "repeat"))
    result = call(cluster, "top", "digits")
    assert (result.exit_code, result.stderr) == (3, "error: the API server is gone\nnext: repeat\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["digits"], "you may not list pods.metrics.k8s.io in the namespace team", id="metrics"),
        pytest.param([], "you may not list pods in the namespace team", id="pods"),
        pytest.param(["-A"], "you may not list pods in all namespaces", id="pods of all namespaces"),
    ],
)
def test_no_permission(arguments: list[str], sentence: str) -> None:
    cluster = FakeCluster(a_job(), MASTER)
    cluster.serve(METRICS, {"resources": []})
    result = call(cluster, "top", *arguments)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (3, f"error: {sentence}")


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        pytest.param(["digit"], 4, "there is no job digit", id="a job that is not"),
        pytest.param(["digits", "-A"], 2, "-A and -l choose among jobs", id="a job of all namespaces"),
        pytest.param(["--sum"], 2, "--containers and --sum are about the pods of a job", id="a sum of jobs"),
        pytest.param(["digits", "--sort-by", "gpu"], 2, "'gpu' is not one of 'cpu', 'memory'", id="another order"),
    ],
)
def test_bad_input(arguments: list[str], status: int, sentence: str) -> None:
    result = call(a_cluster(), "top", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert sentence in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[1].startswith("next: ")


@pytest.mark.parametrize(
    ("resources", "requested"),
    [
        pytest.param({"limits": {"cpu": "2"}}, Amounts(2), id="a limit is the request too"),
        pytest.param({"requests": {"memory": "1Ki"}}, Amounts(None, 1024), id="a request alone"),
        pytest.param({"limits": {"amd.com/gpu": "4"}}, Amounts(gpu=4), id="another vendor"),
        pytest.param({"limits": {"nvidia.com/mig-1g.5gb": "2"}}, Amounts(gpu=2), id="a part of a GPU"),
        pytest.param({"limits": {"rdma/hca": "1"}}, Amounts(), id="no GPU"),
        pytest.param({}, Amounts(), id="nothing"),
    ],
)
def test_what_a_pod_asks_for(resources: Object, requested: Amounts) -> None:
    body = a_pod("digits", "worker-0")
    body["spec"]["containers"][0]["resources"] = resources
    (row,) = pod_usages([body], [])
    assert row.requested == requested


def test_the_sum_of_nothing() -> None:
    assert total("digits", []).used == Amounts()
