"""`report`: what is in the archive, what is left out, and that no planted secret is in it."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytorchjob.cluster.api import LogRequest, Object
from pytorchjob.cluster.errors import ApiServerUnreachable, NoPermission
from pytorchjob.cluster.gather import DEPLOYMENTS
from pytorchjob.report import archive, log_ends
from pytorchjob.report.collect import lines_about
from pytorchjob.report.log_ends import LogEnd, read_log_ends
from pytorchjob.report.redaction import Redaction
from tests.people.calling import call
from tests.people.fake_cluster import FakeCluster, a_job, a_pod, an_event, timestamp

SERVICES = "/api/v1/namespaces/team/services?labelSelector=training.kubeflow.org%2Fjob-name%3Ddigits"
OPERATORS = "/api/v1/namespaces/ops/pods?labelSelector=app.kubernetes.io%2Fname%3Dpytorchjob-operator"
NAME = "pytorchjob-operator-1"


class Recording(FakeCluster):
    """Remembers which paths were read."""

    def __init__(self, *objects: Object) -> None:
        super().__init__(*objects)
        self.asked: list[str] = []

    def read(self, path: str) -> Object | None:
        self.asked.append(path)
        return super().read(path)


def a_cluster(*more: Object, job: Object | None = None) -> Recording:
    """A job of three pods, a restarted one among them, and its operator."""
    cluster = Recording(
        job or a_job(),
        a_pod("digits", "master-0"),
        a_pod("digits", "worker-0", restarts=1),
        a_pod("digits", "worker-1"),
        an_event("digits", "PyTorchJobCreated", "it is created"),
        an_event("digits-worker-0", "BackOff", "it fails", kind="Pod"),
        an_event("other", "PyTorchJobCreated", "of another job"),
        *more,
    )
    cluster.write("digits-master-0", "first line")
    cluster.write("digits-worker-0", "of the earlier container", previous=True)
    cluster.write("digits-worker-0", "of this container")
    cluster.serve(SERVICES, {"items": [{"metadata": {"name": "digits-master-0"}, "spec": {"clusterIP": "None"}}]})
    deployment = {"metadata": {"namespace": "ops", "labels": {"app.kubernetes.io/version": "1.2.3"}}, "spec": {}}
    cluster.serve(DEPLOYMENTS, {"items": [deployment]})
    cluster.serve("/apis/kubeflow.org/v1", {"resources": []})
    pod = {"metadata": {"name": NAME, "namespace": "ops"}, "spec": {"containers": [{"name": "operator"}]}}
    cluster.serve(OPERATORS, {"items": [pod]})
    cluster.put({"kind": "Pod", **pod})
    cluster.write(
        NAME, "2026-01-02 INFO team/digits: made a pod", "2026-01-02 INFO team/other: x", container="operator"
    )
    return cluster


def report(cluster: FakeCluster, folder: Path, *arguments: str) -> dict[str, str]:
    """The files of the archive."""
    path = folder / "a.tar.gz"
    result = call(cluster, "report", "digits", "-o", path, *arguments)
    assert (result.exit_code, result.stdout) == (0, f"{path}\n"), result.output
    return unpacked(path.read_bytes())


def unpacked(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            member.name.removeprefix("digits-report/"): read.read().decode()
            for member in tar
            if (read := tar.extractfile(member))
        }


def manifest(files: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files["manifest.json"])
    return found


def test_the_archive_has_what_an_issue_needs(tmp_path: Path) -> None:
    files = report(a_cluster(), tmp_path)
    assert list(files) == [
        "manifest.json",
        "job.yaml",
        "pods.yaml",
        "services.yaml",
        "events.yaml",
        "events.txt",
        "status.txt",
        "doctor.txt",
        "versions.txt",
        "logs/digits-master-0/pytorch.log",
        "logs/digits-worker-0/pytorch.log",
        "logs/digits-worker-0/pytorch.previous.log",
        f"operator/{NAME}.log",
    ]
    assert "of the earlier container" in files["logs/digits-worker-0/pytorch.previous.log"]
    assert files[f"operator/{NAME}.log"] == f"{timestamp()} 2026-01-02 INFO team/digits: made a pod\n"
    assert "of another job" not in files["events.yaml"]
    assert "BackOff" in files["events.txt"]
    assert files["status.txt"].startswith("PyTorchJob team/digits\nState: ")
    assert files["doctor.txt"].startswith("PyTorchJob team/digits is ")
    assert "operator: 1.2.3\n" in files["versions.txt"]
    assert "kind: Service" in files["services.yaml"]


def test_the_manifest_lists_files_and_what_was_left_out(tmp_path: Path) -> None:
    files = report(a_cluster(), tmp_path)
    found = manifest(files)
    assert found["job"] == "team/digits"
    assert found["files"] == {name: len(text.encode()) for name, text in files.items() if name != "manifest.json"}
    assert found["leftOut"]["Secrets and ConfigMaps"] == "never read"
    assert found["leftOut"]["logs/digits-worker-1/pytorch.log"] == "it is empty"
    assert found["redacted"] == {}


PLANTED = {
    "HF_TOKEN": "hf_AbCdEfGh1234567890",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "DB_PASSWORD": "tr0ub4dor&3",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCY",
    "CLIENT_SECRET": "entirely ordinary words",
    "GOOGLE_CREDENTIALS": '{"private_key_id": "k1k2k3k4", "x": "yy zz"}',
}
"""Variables of a container, and their values."""
SHOWN = {
    "bearer": "Authorization: Bearer zzz.yyy.xxx",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_0123456789abcdefABCDEF",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl",
    "key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
    "url": "postgres://ann:geheim@db/x",
    "option": "--api-key sesameopen",
}
"""Secrets that only their shape gives away, as a script prints them."""
FORBIDDEN = [
    *PLANTED.values(),
    "k1k2k3k4",
    "zzz.yyy.xxx",
    "AKIAIOSFODNN7",
    "ghp_0123",
    "eyJzdWIi",
    "MIIEvQIB",
    "geheim",
    "sesameopen",
    "former-value-99",
]


def planted() -> Recording:
    """A cluster in which every place has every secret."""
    container = {
        "name": "pytorch",
        "image": "train:1",
        "command": ["sh", "-c", f"login {PLANTED['DB_PASSWORD']} && train {SHOWN['option']}"],
        "args": ["--password", PLANTED["CLIENT_SECRET"]],
        "env": [{"name": name, "value": value} for name, value in PLANTED.items()],
    }
    words = "\n".join([*PLANTED.values(), *SHOWN.values()])
    job = a_job(pytorchReplicaSpecs={"Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}})
    old = json.dumps({"spec": {"env": [{"name": "OLD_TOKEN", "value": "former-value-99"}]}})
    job["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": old + words,
        "copy": old,
        "note": words,
    }
    job["status"]["conditions"][0]["message"] = f"failed: former-value-99 {words}"
    pod = a_pod("digits", "master-0", restarts=1)
    pod["spec"]["containers"] = [container]
    pod["status"]["containerStatuses"][0]["lastState"] = {
        "terminated": {"exitCode": 1, "message": f"{words} and the end {PLANTED['HF_TOKEN'][:-3]}"}
    }
    cluster = a_cluster(pod, an_event("digits", "Failed", f"{words} former-value-99", seconds=1), job=job)
    for name in ("digits-master-0", "digits-worker-0"):
        for line in words.split("\n"):
            cluster.write(name, f"10:00 {line} former-value-99", f"{PLANTED['HF_TOKEN']}")
            cluster.write(name, line, previous=True)
    cluster.write("digits-worker-1", f"{'x' * 40} {PLANTED['WANDB_API_KEY']}")
    cluster.write(NAME, f"2026-01-02 ERROR team/digits: {words}", container="operator")
    return cluster


@pytest.mark.parametrize("secret", FORBIDDEN)
def test_a_planted_secret_is_in_no_file_of_the_archive(tmp_path: Path, secret: str) -> None:
    files = report(planted(), tmp_path)
    variants = [secret, json.dumps(secret)[1:-1], secret[:12]]
    assert [(name, text) for name, text in files.items() if any(each in name + text for each in variants)] == []


def test_the_secrets_were_there_to_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same archive without redaction has all of them: the test above can fail."""

    class Nothing(Redaction):
        def clean(self, value: Any) -> Any:
            return value

    monkeypatch.setattr(archive, "Redaction", Nothing)
    files = report(planted(), tmp_path)
    everything = "".join(files.values())
    assert [secret for secret in FORBIDDEN if secret not in everything] == []


def test_what_was_redacted_is_counted(tmp_path: Path) -> None:
    counts = manifest(report(planted(), tmp_path))["redacted"]
    assert {"not listed", "known value", "AWS key", "GitHub token", "private key"} <= counts.keys()
    assert counts["not listed"] >= len(PLANTED)


def test_secrets_and_configmaps_are_never_read(tmp_path: Path) -> None:
    cluster = planted()
    report(cluster, tmp_path)
    assert [path for path in cluster.asked if "secrets" in path or "configmaps" in path] == []
    assert SERVICES in cluster.asked


@pytest.mark.parametrize(
    ("method", "left_out"),
    [
        pytest.param("pods", "the job's pods", id="pods"),
        pytest.param("events", "events", id="events"),
        pytest.param("log", "logs/digits-master-0/pytorch.log", id="logs"),
    ],
)
def test_what_a_person_may_not_read_is_left_out_with_its_reason(tmp_path: Path, method: str, left_out: str) -> None:
    cluster = a_cluster()
    cluster.fail(method, *[NoPermission(f"ann may not get {method}")] * 40)
    found = manifest(report(cluster, tmp_path))
    assert found["leftOut"][left_out] == f"ann may not get {method}"
    assert "job.yaml" in found["files"]


def test_without_an_operator_that_can_be_read(tmp_path: Path) -> None:
    found = manifest(report(FakeCluster(a_job()), tmp_path))
    assert "you may not read them" in found["leftOut"]["the operator's log"]
    assert "services" in found["leftOut"]


def test_no_logs(tmp_path: Path) -> None:
    files = report(a_cluster(), tmp_path, "--no-logs")
    assert not [name for name in files if name.startswith(("logs/", "operator/"))]
    assert manifest(files)["leftOut"]["logs"] == "not wanted (--no-logs)"


def test_the_number_of_lines(tmp_path: Path) -> None:
    cluster = a_cluster()
    cluster.write("digits-master-0", *map(str, range(100, 110)))
    text = report(cluster, tmp_path, "--tail", "2")["logs/digits-master-0/pytorch.log"]
    assert [line.split()[1] for line in text.splitlines()] == ["108", "109"]


def test_the_archive_is_for_its_owner_alone(tmp_path: Path) -> None:
    report(a_cluster(), tmp_path)
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_the_archive_to_stdout() -> None:
    result = call(a_cluster(), "report", "digits", "-o", "-")
    assert "job.yaml" in unpacked(result.stdout_bytes)
    assert result.stderr.startswith("files: ")


def test_what_is_shown_on_stderr(tmp_path: Path) -> None:
    result = call(planted(), "report", "digits", "-o", tmp_path / "x.tgz")
    assert "redacted: " in result.stderr
    assert "left out: Secrets and ConfigMaps: never read" in result.stderr
    assert result.stderr.splitlines()[-1].endswith(f"tar xzf {tmp_path}/x.tgz")


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        pytest.param(["digit", "-o", "x.tgz"], 4, "there is no job digit", id="a job that is not"),
        pytest.param(["digits", "-o", "no/such/x.tgz"], 2, "the directory no/such does not exist", id="no directory"),
        pytest.param(["digits", "-o", "."], 2, "is a directory", id="a directory"),
        pytest.param(["digits", "--tail", "0"], 2, "0 is less than 1", id="no lines"),
        pytest.param([], 2, "Missing argument", id="no job"),
    ],
)
def test_bad_input(arguments: list[str], status: int, sentence: str) -> None:
    result = call(a_cluster(), "report", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert sentence in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[1].startswith("next: ")


def test_a_log_that_breaks_keeps_what_has_come() -> None:
    cluster = FakeCluster()
    cluster.write("p", "one", ApiServerUnreachable("the node is gone"), "two")
    found = read_log_ends(cluster, {"a": LogRequest("p", "pytorch")})
    assert found["a"] == LogEnd(f"{timestamp()} one\n", "the node is gone")


def test_a_log_has_a_limit_and_no_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "_MOST_EACH", 200)
    monkeypatch.setattr(log_ends, "_LEAST_EACH", 200)
    cluster = FakeCluster()
    cluster.write("p", *[f"line {number}" for number in range(50)], "x" * 70_000, "last")
    lines = read_log_ends(cluster, {"a": LogRequest("p", "pytorch")})["a"].text.splitlines()
    assert lines[-2].startswith("[a line of 700")
    assert lines[-1].endswith(" last")
    assert 3 <= len(lines) <= 8


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        pytest.param(["2026-01 team/digits: x", "2026-01 team/other: y"], [0], id="another job"),
        pytest.param(["2026 team/digits-2: x", "2026 steam/digits: y", "2026 team/digits.x"], [], id="similar names"),
        pytest.param(["2026 pod team/digits-worker-3 is gone"], [0], id="a pod of the job"),
        pytest.param(
            ["2026-01-01 E team/digits: x", "Traceback", "  File", "2026-01-01 I y"], [0, 1, 2], id="a traceback"
        ),
        pytest.param(['{"msg": "team/digits: x"}', '{"msg": "y"}'], [0], id="JSON"),
    ],
)
def test_the_lines_of_the_operator_that_are_kept(lines: Sequence[str], kept: list[int]) -> None:
    stamped = [f"{timestamp()} {line}\n" for line in lines]
    found = lines_about("team", "digits")(LogEnd("".join(stamped)))
    assert found.text == "".join(stamped[number] for number in kept)
