"""The Python client over a cluster in memory."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytorchjob
from pytorchjob import Job, JobFailedError, PyTorchJobClient, TrainFunction
from pytorchjob.client.function import SCRIPT
from pytorchjob.client.on_cluster import ClusterBackend
from pytorchjob.cluster.errors import JobMissing
from pytorchjob.local.translate import expand
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.load import validate_dict
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
    assert (body["spec"]["agent"], validate_dict(body)) == ({"inject": True}, [])
    assert container["env"][0]["value"].endswith("train(**json.loads('{\"rate\": 0.2}'))\n")
    compile(container["env"][0]["value"], "train.py", "exec")


CLAIM = {"persistentVolumeClaim": {"claimName": "set"}}
KEY = {"secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}}
QUEUE = "kueue.x-k8s.io/queue-name"


@pytest.mark.parametrize(
    ("fields", "where", "found"),
    [
        pytest.param({"launcher": "torchrun"}, "agent", None, id="without the agent"),
        pytest.param({"launcher": "pytorchjob-agent run --"}, "agent", None, id="the agent of the image"),
        pytest.param({"volumes": {"/d": "set"}}, "pod volumes", [{"name": "volume-0", **CLAIM}], id="a claim"),
        pytest.param(
            {"volumes": {"/d": {"emptyDir": {}}}}, "pod volumes", [{"name": "volume-0", "emptyDir": {}}], id="a volume"
        ),
        pytest.param(
            {"volumes": {"/d": "set"}},
            "container volumeMounts",
            [{"name": "volume-0", "mountPath": "/d"}],
            id="a mount",
        ),
        pytest.param({"secrets": ["s"]}, "container envFrom", [{"secretRef": {"name": "s"}}], id="a Secret"),
        pytest.param({"environment": {"A": "1"}}, "container env 1", {"name": "A", "value": "1"}, id="a variable"),
        pytest.param(
            {"environment": {"A": KEY}}, "container env 1", {"name": "A", "valueFrom": KEY}, id="a key of a Secret"
        ),
        pytest.param({"image_pull_secrets": ["s"]}, "pod imagePullSecrets", [{"name": "s"}], id="a registry"),
        pytest.param({"labels": {"a": "b"}}, "template metadata labels", {"a": "b"}, id="labels of pods"),
        pytest.param({"labels": {"a": "b"}}, "job metadata labels", {"a": "b"}, id="labels of the job"),
        pytest.param({"labels": {QUEUE: "q"}}, "job metadata labels", {QUEUE: "q"}, id="a queue of the job"),
        pytest.param({"labels": {QUEUE: "q"}}, "template metadata", None, id="no queue of the pods"),
        pytest.param({"annotations": {"a": "b"}}, "template metadata annotations", {"a": "b"}, id="annotations"),
        pytest.param({"node_selector": {"gpu": "a"}}, "pod nodeSelector", {"gpu": "a"}, id="a node selector"),
        pytest.param({"tolerations": [{"key": "gpu"}]}, "pod tolerations", [{"key": "gpu"}], id="a toleration"),
        pytest.param({"service_account": "fit"}, "pod serviceAccountName", "fit", id="a service account"),
        pytest.param({"pods": 4, "min_pods": 2}, "elasticPolicy", {"minReplicas": 2, "maxReplicas": 4}, id="at least"),
        pytest.param({"pods": 4, "max_pods": 8}, "elasticPolicy", {"minReplicas": 4, "maxReplicas": 8}, id="at most"),
        pytest.param({"pods": 4, "max_pods": 8}, "pytorchReplicaSpecs Master", None, id="no Master if elastic"),
        pytest.param({"pods": 4, "max_pods": 8}, "pytorchReplicaSpecs Worker replicas", 4, id="workers if elastic"),
        pytest.param({"pods": 4}, "elasticPolicy", None, id="a fixed size"),
        pytest.param({"processes": "gpu"}, "nprocPerNode", "gpu", id="processes"),
    ],
)
def test_a_field_of_a_function_is_in_its_job(fields: dict[str, Any], where: str, found: Any) -> None:
    job = TrainFunction(train, "x", **fields).job("fit")
    roles = job["spec"]["pytorchReplicaSpecs"]
    template = (roles.get("Master") or roles["Worker"])["template"]
    start = {"job": job, "template": template, "pod": template["spec"], "container": template["spec"]["containers"][0]}
    first, *rest = where.split()
    at: Any = start.get(first, job["spec"].get(first))
    for key in rest:
        at = at[int(key)] if isinstance(at, list) else (at or {}).get(key)
    assert (at, validate_dict(job)) == (found, [])


def test_a_job_without_further_fields_has_no_empty_ones() -> None:
    spec = TrainFunction(train, "x").job("fit")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    assert list(spec) == ["spec"]
    assert list(spec["spec"]) == ["containers"]
    assert sorted(spec["spec"]["containers"][0]) == ["command", "env", "image", "name"]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        pytest.param({"packages": ["tqdm>=4", "a b"]}, "'tqdm>=4' 'a b'", id="packages are quoted"),
        pytest.param({"launcher": "torchrun"}, 'exec torchrun "$f"', id="torchrun"),
        pytest.param({"launcher": "accelerate launch"}, 'exec accelerate launch "$f"', id="another launcher"),
        pytest.param({}, "exec python -m pytorchjob_agent run --", id="the agent"),
        pytest.param({}, 'exec torchrun "$f"', id="torchrun where the operator has no agent"),
    ],
)
def test_what_a_pod_starts(fields: dict[str, Any], line: str) -> None:
    roles = TrainFunction(train, "x", **fields).job("fit")["spec"]["pytorchReplicaSpecs"]
    assert line in roles["Master"]["template"]["spec"]["containers"][0]["command"][2]


@pytest.mark.parametrize(
    ("agent", "started"),
    [
        pytest.param(True, "python -m pytorchjob_agent run --", id="with the agent"),
        pytest.param(False, "torchrun", id="without it"),
    ],
)
def test_a_pod_without_the_agent_starts_torchrun(agent: bool, started: str, tmp_path: Path) -> None:
    """The shell of a pod whose programs only print how they were started."""
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "torchrun $1"; cat "$1"\n')
    says = 'echo "python $*"' if agent else "exit 1"
    (tmp_path / "python").write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {0 if agent else 1}\n{says}\n')
    for program in ("torchrun", "python"):
        (tmp_path / program).chmod(0o755)
    container = TrainFunction(train, "x").job("fit")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"][
        "containers"
    ][0]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path), SCRIPT: container["env"][0]["value"]}
    done = subprocess.run(container["command"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(started)
    assert agent or "torch.manual_seed" in done.stdout
    assert ("no agent" in done.stderr) is not agent


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
