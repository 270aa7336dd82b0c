"""The commands against a real API server, with a person's kubeconfig."""

import json
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pytorchjob.cli import main
from pytorchjob.cluster.connect import connect
from pytorchjob.cluster.errors import NotInstalled
from pytorchjob.cluster.http import Http, Request
from pytorchjob.cluster.kubeconfig import load
from pytorchjob.cluster.options import ConnectOptions
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Jobs
from tests.people.calling import job_file
from tests.ports import free_port

pytestmark = pytest.mark.apiserver
SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}
Call = Callable[..., Result]


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace that no operator serves."""
    return make_jobs()


@pytest.fixture
def call(jobs: Jobs) -> Call:
    """Runs a command in the namespace of the test."""

    def run(*arguments: object, kubeconfig: Path | None = None) -> Result:
        where = ["--kubeconfig", str(kubeconfig or jobs.plane.kubeconfig), "-n", jobs.namespace]
        command, *rest = map(str, arguments)
        return CliRunner().invoke(main, [command, *where, *rest])

    return run


def test_a_file_of_several_kinds_is_submitted_listed_changed_and_deleted(
    jobs: Jobs, call: Call, tmp_path: Path
) -> None:
    path = job_file(tmp_path, SETTINGS)
    result = call("submit", path, "--dry-run=server")
    assert result.exit_code == 0, result.stderr
    assert jobs.count("ptj") == 0
    assert "pytorchjob.kubeflow.org/digits created" in call("submit", path).stdout
    assert call("list").stdout.splitlines()[1].split()[:3] == ["digits", "New", "0/3"]
    assert "scaled from 2 to 4 workers" in call("scale", "digits", "4").stdout
    assert call("suspend", "digits").exit_code == 0
    spec = jobs.get("digits")["spec"]
    assert (spec["pytorchReplicaSpecs"]["Worker"]["replicas"], spec["runPolicy"]["suspend"]) == (4, True)
    assert call("resume", "digits").exit_code == 0
    assert call("delete", "digits", "--timeout", "90s").exit_code == 0
    assert jobs.count("ptj") == 0


def test_a_file_may_be_submitted_again_but_not_its_job(call: Call, tmp_path: Path) -> None:
    call("submit", job_file(tmp_path, SETTINGS))
    result = call("submit", job_file(tmp_path, SETTINGS))
    assert (result.exit_code, result.stdout) == (1, "configmap/settings unchanged\n")
    assert "the PyTorchJob digits already exists" in result.stderr
    changed = SETTINGS | {"data": {"a": "2"}}
    assert "its content differs" in call("submit", job_file(tmp_path, changed)).stderr


@pytest.mark.parametrize(
    ("other", "words"),
    [
        pytest.param({"kind": "ConfigMop"}, "did you mean ConfigMap?", id="a kind that does not exist"),
        pytest.param({"apiVersion": "unknown.org/v1"}, "install its definition", id="an API that does not exist"),
        pytest.param({"dota": {}}, 'unknown field "dota"', id="an unknown field"),
        pytest.param({"metadata": {"name": "A_B"}}, "metadata.name: ", id="an invalid name"),
    ],
)
def test_what_the_server_refuses_ends_with_2(call: Call, tmp_path: Path, other: dict[str, Any], words: str) -> None:
    result = call("submit", job_file(tmp_path, SETTINGS | other))
    assert (result.exit_code, words in result.stderr) == (2, True)


def test_a_job_that_the_server_alone_refuses(jobs: Jobs, call: Call, tmp_path: Path) -> None:
    call("submit", job_file(tmp_path, elasticPolicy={"minReplicas": 1, "maxReplicas": 3}))
    result = call("scale", "digits", "20000")
    assert (result.exit_code, "allows 1 to 3 workers" in result.stderr) == (2, True)


def test_a_missing_job_names_what_may_be_meant(call: Call, tmp_path: Path) -> None:
    call("submit", job_file(tmp_path))
    result = call("suspend", "digit")
    assert (result.exit_code, "next: did you mean digits?" in result.stderr) == (4, True)


def test_a_person_without_rights_learns_which_right_is_missing(jobs: Jobs, call: Call, tmp_path: Path) -> None:
    for command in (["list"], ["submit", job_file(tmp_path)], ["scale", "digits", "3"]):
        result = call(*command, "--as", "ann")
        assert result.exit_code == 3
        assert f"ann may not {'create' if command[0] == 'submit' else 'list' if command[0] == 'list' else 'get'}" in (
            result.stderr
        )
        assert f"pytorchjobs.kubeflow.org in the namespace {jobs.namespace}" in result.stderr
        assert "kubectl auth can-i" in result.stderr


def test_a_group_that_has_the_rights_is_acted_for(call: Call) -> None:
    assert call("list", "--as", "ann", "--as-group", "x", "--as-group", "system:masters").exit_code == 0


def changed(jobs: Jobs, folder: Path, **fields: Any) -> Path:
    """The control plane's kubeconfig with other fields of its cluster or user."""
    body = yaml.safe_load(jobs.plane.kubeconfig.read_text())
    body["clusters"][0]["cluster"].update(fields.get("cluster", {}))
    body["users"][0]["user"] = fields.get("user", body["users"][0]["user"])
    (folder / "kubeconfig").write_text(yaml.safe_dump(body))
    return folder / "kubeconfig"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        pytest.param({"user": {"token": "old"}}, "does not accept your credentials", id="an expired token"),
        pytest.param({"user": {}}, "system:anonymous may not list", id="no credentials"),
        pytest.param(
            {"cluster": {"server": f"https://127.0.0.1:{free_port()}"}}, "refuses connections", id="a dead server"
        ),
        pytest.param({"cluster": {"tls-server-name": "other"}}, "its certificate is not trusted", id="another name"),
        pytest.param(
            {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such"}}},
            "exec plugin no-such cannot be started",
            id="no plugin",
        ),
    ],
)
def test_a_cluster_that_cannot_be_used_ends_with_3(
    jobs: Jobs, call: Call, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    result = call("list", kubeconfig=changed(jobs, tmp_path, **fields))
    assert (result.exit_code, result.stderr.count("error: "), result.stderr.count("next: ")) == (3, 1, 1)
    assert sentence in result.stderr


def test_a_certificate_of_another_authority_is_named(jobs: Jobs, call: Call, tmp_path: Path) -> None:
    path = changed(jobs, tmp_path)
    body = yaml.safe_load(path.read_text())
    del body["clusters"][0]["cluster"]["certificate-authority"]
    path.write_text(yaml.safe_dump(body))
    result = call("list", kubeconfig=path)
    assert (result.exit_code, "its certificate is not trusted" in result.stderr) == (3, True)


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[str]:
    """A company's proxy. Only the proxy can resolve `api.company.invalid`."""
    server = socket.create_server(("127.0.0.1", 0))
    held = [server]
    target = ("127.0.0.1", int(control_plane.url.rpartition(":")[2]))
    thread = threading.Thread(target=_serve, args=(held, target), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
    thread.join()
    for each in held:
        each.close()


def _serve(held: list[socket.socket], target: tuple[str, int]) -> None:
    while True:
        try:
            client, _ = held[0].accept()
        except OSError:
            return
        held.append(client)
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        assert head.startswith(b"CONNECT api.company.invalid:443 ")
        upstream = socket.create_connection(target)
        held.append(upstream)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for source, sink in ((client, upstream), (upstream, client)):
            threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_company_s_way_proxy_server_name_plugin_and_impersonation(
    jobs: Jobs, call: Call, tmp_path: Path, proxy: str
) -> None:
    script = f'echo \'{{"status": {{"token": "{jobs.plane.token}"}}}}\''
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    path = changed(
        jobs,
        tmp_path,
        cluster={
            "server": "https://api.company.invalid",
            "proxy-url": proxy,
            "tls-server-name": "kubernetes.default.svc",
        },
        user={"exec": plugin, "as": "ann", "as-groups": ["a", "system:masters"]},
    )
    assert call("submit", job_file(tmp_path), kubeconfig=path).exit_code == 0
    assert "digits" in call("list", kubeconfig=path).stdout


def test_a_watch_sees_each_change(jobs: Jobs, tmp_path: Path) -> None:
    cluster = connect(ConnectOptions(kubeconfig=str(jobs.plane.kubeconfig), namespace=jobs.namespace))
    changes = cluster.watch("digits")
    jobs.apply("digits", 1)
    assert next(changes).kind == "ADDED"
    jobs.patch("digits", {"metadata": {"labels": {"a": "b"}}})
    assert next(changes).object["metadata"]["labels"] == {"a": "b"}
    jobs.kubectl("delete", "ptj", "digits")
    assert next(change for change in changes if change.kind == "DELETED").object["metadata"]["name"] == "digits"


def test_an_api_that_is_not_installed_is_recognised(jobs: Jobs) -> None:
    http = Http(lambda: load(ConnectOptions(kubeconfig=str(jobs.plane.kubeconfig))))
    with pytest.raises(NotInstalled):
        http.json(Request("GET", "/apis/unknown.org/v1/things"))


def test_versions_of_the_cluster(call: Call) -> None:
    lines = call("version").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["client", "operator", "api", "cluster"]
    assert lines[3].startswith("cluster: v1.")


def test_a_cluster_without_a_metrics_server_is_named(call: Call, tmp_path: Path) -> None:
    call("submit", job_file(tmp_path))
    for arguments in (["top", "digits"], ["top"], ["top", "-A"]):
        result = call(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: the cluster has no metrics server: ")
        assert "next: an administrator has to install metrics-server" in result.stderr


def test_a_report_of_a_job_and_of_one_that_a_person_may_only_partly_read(
    jobs: Jobs, call: Call, tmp_path: Path
) -> None:
    container = {"name": "pytorch", "image": "x", "env": [{"name": "HF_TOKEN", "value": "a-planted-secret"}]}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    call("submit", job_file(tmp_path, pytorchReplicaSpecs={"Master": role}))
    rule = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get"]}
    about = {"metadata": {"name": "reader", "namespace": jobs.namespace}, "apiVersion": "rbac.authorization.k8s.io/v1"}
    subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    rights = tmp_path / "rights.yaml"
    role_body = {**about, "kind": "Role", "rules": [rule]}
    binding = {**about, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference}
    rights.write_text(yaml.safe_dump_all([role_body, binding]))
    assert call("submit", rights).exit_code == 0
    whole = report(call, tmp_path / "whole.tgz")
    partly = report(call, tmp_path / "partly.tgz", "--as", "ann")
    left_out = json.loads(partly["manifest.json"])["leftOut"]
    assert "job.yaml" in whole
    assert left_out["the job's pods"].startswith("ann may not list pods")
    assert left_out["events"].startswith("ann may not list events")
    assert left_out["services"] == "you may not list services in this namespace"
    assert "a-planted-secret" not in "".join([*whole.values(), *partly.values()])
    assert call("report", "digits", "-o", tmp_path / "x", "--as", "bob").exit_code == 3


def report(call: Call, path: Path, *arguments: str) -> dict[str, str]:
    """The files of the archive of the job `digits`."""
    result = call("report", "digits", "-o", path, *arguments)
    assert result.exit_code == 0, result.output
    with tarfile.open(path) as tar:
        found = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar}
        return {name: file.read().decode() for name, file in found.items() if file}
