"""The Python client over a cluster in memory."""

from collections.abc import Callable
from typing import Any

import pytest

import pytorchjob
from pytorchjob import Job, JobFailedError, PyTorchJobClient, TrainFunction
from pytorchjob.client.function import SCRIPT
from pytorchjob.client.on_cluster import ClusterBackend
from pytorchjob.cluster.errors import JobMissing
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.local.translate import expand
from tests.local.jobs import job, role
from tests.people.fake_cluster import FakeCluster, a_job, a_pod, an_event

GOOD = job(Master=role(["x"]), Worker=role(["x"], replicas=2))


def client(*objects: Any) -> tuple[PyTorchJobClient, FakeCluster]:
    cluster = FakeCluster(*objects)
    return PyTorchJobClient(ClusterBackend(cluster)), cluster


def train(rate: float = 0.1) -> None:
    import torch

    torch.manual_seed(int(rate * 10))


@pytest.mark.parametrize("how", ["a dict", "a text", "a file"])
def test_a_job_is_created_from(how: str, tmp_path: Any) -> None:
    import yaml

    text = yaml.safe_dump(GOOD)
    path = tmp_path / "job.yaml"
    path.write_text(text)
    found, cluster = client()
    made = found.create_job({"a dict": GOOD, "a text": text, "a file": path}[how])
    assert (made.name, made.state) == (GOOD["metadata"]["name"], "New")
    assert [change[:2] for change in cluster.changes] == [("create", "PyTorchJob")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param({**GOOD, "spec": {}}, "pytorchReplicaSpecs", id="no roles"),
        pytest.param("kind: Pod\nmetadata: {name: x}\napiVersion: v1\n", "found 0", id="no job"),
        pytest.param("missing.yaml", "there is no such file", id="no file"),
    ],
)
def test_a_wrong_job_is_refused_before_anything_is_created(source: Any, words: str) -> None:
    found, cluster = client()
    with pytest.raises(InvalidJob, match=words):
        found.create_job(source)
    assert cluster.changes == []


def test_a_job_is_read_with_its_state() -> None:
    found, _ = client(a_job("digits"), a_job("other", state="Failed"))
    assert (found.get_job("digits").state, found.get_job("digits").end) == ("Running", "")
    assert {job.name: job.end for job in found.list_jobs()} == {"digits": "", "other": "Failed"}
    with pytest.raises(JobMissing):
        found.get_job("missing")


def test_waiting_ends_with_the_state_and_reports_each_change() -> None:
    found, cluster = client(a_job("digits", state=""))
    states = ["Running", "Succeeded"]
    seen: list[str] = []

    def changes(job: Job) -> None:
        seen.append(job.state)
        if states:
            cluster.put(a_job("digits", state=states.pop(0)))

    assert found.wait_for_job_status("digits", callback=changes, polling_interval=0).end == "Succeeded"
    assert seen == ["New", "Running", "Succeeded"]


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        pytest.param("Failed", JobFailedError, "has failed", id="the job fails"),
        pytest.param("Running", TimeoutError, "is Running after 0 s, not Succeeded", id="the time is over"),
    ],
)
def test_waiting_in_vain(state: str, error: type[Exception], words: str) -> None:
    found, _ = client(a_job("digits", state=state))
    with pytest.raises(error, match=words):
        found.wait_for_job_status("digits", timeout=0, polling_interval=0)


@pytest.mark.parametrize(
    ("act", "spec"),
    [
        (lambda c: c.scale_job("digits", 5), {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}),
        (lambda c: c.suspend_job("digits"), {"runPolicy": {"suspend": True}}),
        (lambda c: c.resume_job("digits"), {"runPolicy": {"suspend": False}}),
    ],
    ids=["scale", "suspend", "resume"],
)
def test_a_job_is_changed(act: Callable[[PyTorchJobClient], Job], spec: Any) -> None:
    found, cluster = client(a_job("digits"))
    act(found)
    assert cluster.changes == [("patch", "digits", {"spec": spec})]


def test_a_job_is_deleted() -> None:
    found, cluster = client(a_job("digits"))
    found.delete_job("digits")
    assert cluster.changes == [("delete", "digits")]


def test_the_lines_of_all_pods_are_merged() -> None:
    found, cluster = client(
        a_job("digits", state="Succeeded"), a_pod("digits", "master-0"), a_pod("digits", "worker-0")
    )
    cluster.write("digits-master-0", "[rank0]: step 1")
    cluster.write("digits-worker-0", "[rank1]: step 1")
    assert sorted(found.get_job_logs("digits")) == ["[rank0] step 1", "[rank1] step 1"]
    assert list(found.get_job_logs("digits", ranks="1")) == ["[rank1] step 1"]


def test_a_reader_of_lines_may_stop_early() -> None:
    found, cluster = client(a_job("digits"), a_pod("digits", "master-0"))
    for number in range(5):
        cluster.write("digits-master-0", f"[rank0]: step {number}")
    lines = found.get_job_logs("digits")
    assert next(lines) == "[rank0] step 0"
    lines.close()  # type: ignore[attr-defined]


def test_events_are_those_of_the_job_and_its_pods() -> None:
    events = [
        an_event("digits", "Created", "a"),
        an_event("digits-master-0", "Pulled", "b", kind="Pod", seconds=1),
        an_event("other", "X", "c"),
    ]
    found, _ = client(a_job("digits"), a_pod("digits", "master-0"), *events)
    assert [event["message"] for event in found.get_job_events("digits")] == ["a", "b"]


def test_a_function_becomes_a_job() -> None:
    found, cluster = client()
    found.train("fit", TrainFunction(train, "my/torch:1", {"rate": 0.2}, pods=3, limits={"cpu": "2"}))
    body = cluster.job("fit")
    roles = body["spec"]["pytorchReplicaSpecs"]
    container = roles["Worker"]["template"]["spec"]["containers"][0]
    assert (roles["Master"]["replicas"], roles["Worker"]["replicas"]) == (1, 2)
    assert container["command"][2].endswith('exec torchrun "$f"')
    assert container["env"][0]["value"].endswith("train(**json.loads('{\"rate\": 0.2}'))\n")
    compile(container["env"][0]["value"], "train.py", "exec")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param(TrainFunction(lambda: None, "x"), "not a plain function", id="a lambda"),
        pytest.param(TrainFunction(print, "x"), "cannot travel", id="a builtin"),
        pytest.param(TrainFunction(train, "x", {"wrong": 1}), "do not fit", id="an argument that it does not have"),
        pytest.param(TrainFunction(PyTorchJobClient.local, "x"), "method", id="a bound method"),
        pytest.param(TrainFunction(train, "x", {"rate": object()}), "cannot travel", id="an argument without JSON"),
        pytest.param(TrainFunction(train, "x", {"rate": "x" * 100_000}), "put the code into the image", id="too long"),
    ],
)
def test_a_function_that_cannot_travel_is_refused(function: TrainFunction, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        function.job("fit")


def test_a_dollar_sign_travels() -> None:
    def fit(text: str) -> None:
        print(f"{text} $(HOME) $$ $HOME")

    function = TrainFunction(fit, "x", {"text": "$(PATH)$"})
    job = function.job("fit")
    (value,) = [
        each["value"]
        for each in job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == SCRIPT
    ]
    assert expand(value, {"HOME": "/root", "PATH": "/bin"}) == function.script()


def test_a_missing_job_is_the_same_error_everywhere() -> None:
    for missing in (PyTorchJobClient.local(), PyTorchJobClient(ClusterBackend(FakeCluster()))):
        with pytest.raises(pytorchjob.JobMissing):
            missing.get_job("nowhere")


@pytest.mark.parametrize("name", [name for name in pytorchjob.__all__ if name.endswith(("Error", "Missing", "Run"))])
def test_the_errors_have_one_base(name: str) -> None:
    assert issubclass(getattr(pytorchjob, name), pytorchjob.PyTorchJobError)
