"""A person's kubeconfig: the ways in which companies reach their clusters, and a sentence for each mistake."""

import base64
import copy
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob.cluster.errors import NoCluster
from pytorchjob.cluster.kubeconfig import Access, load
from pytorchjob.cluster.options import ConnectOptions

KUBECONFIG: dict[str, Any] = {
    "current-context": "dev",
    "contexts": [
        {"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "bare", "context": {"cluster": "c", "user": "u"}},
    ],
    "clusters": [{"name": "c", "cluster": {"server": "https://c:6443/", "certificate-authority": "ca.pem"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}
Change = Callable[[Any], object]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))


def written(folder: Path, change: Change = lambda body: None, name: str = "config") -> Path:
    body = copy.deepcopy(KUBECONFIG)
    change(body)
    folder.mkdir(exist_ok=True)
    (folder / "ca.pem").write_text("CA")
    (folder / name).write_text(yaml.safe_dump(body))
    return folder / name


def user(**fields: Any) -> Change:
    return lambda body: body["users"][0].update(user=fields)


def cluster(**fields: Any) -> Change:
    return lambda body: body["clusters"][0]["cluster"].update(fields)


def read(*paths: Path, **options: Any) -> Access:
    return load(ConnectOptions(**options), {"KUBECONFIG": os.pathsep.join(map(str, paths))})


def token(access: Access) -> str | None:
    return access.configuration.get_api_key_with_prefix("BearerToken")


def test_the_current_context(tmp_path: Path) -> None:
    found = read(written(tmp_path))
    assert (found.configuration.host, found.namespace, token(found)) == ("https://c:6443", "team", "Bearer secret")
    assert found.configuration.ssl_ca_cert == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("options", "namespace"),
    [
        pytest.param({}, "team", id="the context's"),
        pytest.param({"context": "bare"}, "default", id="a context without one"),
        pytest.param({"namespace": "mine"}, "mine", id="the flag's"),
        pytest.param({"context": "bare", "namespace": "mine"}, "mine", id="both flags"),
    ],
)
def test_the_namespace(tmp_path: Path, options: dict[str, str], namespace: str) -> None:
    assert read(written(tmp_path), **options).namespace == namespace


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        pytest.param({"token": "t"}, "Bearer t", id="a token"),
        pytest.param({"tokenFile": "token"}, "Bearer from-file", id="a token file, beside the kubeconfig"),
        pytest.param({"username": "me", "password": "x"}, "Basic bWU6eA==", id="a password"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_credentials(tmp_path: Path, fields: dict[str, str], header: str | None) -> None:
    (tmp_path / "token").write_text("from-file\n")
    assert token(read(written(tmp_path, user(**fields)))) == header


def test_client_certificates_inline_and_as_files(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("KEY")
    inline = base64.b64encode(b"CERT").decode()
    found = read(written(tmp_path, user(**{"client-certificate-data": inline, "client-key": "key.pem"}))).configuration
    assert (Path(found.cert_file).read_text(), Path(found.key_file).read_text()) == ("CERT", "KEY")


def plugin(status: Any, **fields: Any) -> Change:
    script = f"echo '{json.dumps({'apiVersion': 'v1', 'kind': 'ExecCredential', 'status': status})}'"
    return user(
        exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script], **fields}
    )


@pytest.mark.parametrize(
    ("status", "header", "certificate"),
    [
        pytest.param({"token": "t"}, "Bearer t", None, id="a token"),
        pytest.param({"clientCertificateData": "CERT", "clientKeyData": "KEY"}, None, "CERT", id="a certificate"),
    ],
)
def test_a_plugin_gives_a_token_or_a_certificate(
    tmp_path: Path, status: dict[str, str], header: str | None, certificate: str | None
) -> None:
    found = read(written(tmp_path, plugin(status)))
    file = found.configuration.cert_file
    assert (token(found), Path(file).read_text() if file else None) == (header, certificate)


def test_a_plugin_gets_the_cluster_and_its_variables(tmp_path: Path) -> None:
    script = 'echo "$KUBERNETES_EXEC_INFO" > info; echo "{\\"status\\": {\\"token\\": \\"$NAME\\"}}"'
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "env": [{"name": "NAME", "value": "me"}],
        "provideClusterInfo": True,
    }
    (tmp_path / "login").write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
    (tmp_path / "login").chmod(0o700)
    assert token(read(written(tmp_path, user(exec=spec)))) == "Bearer me"
    info = json.loads((tmp_path / "info").read_text())
    assert (info["apiVersion"], info["spec"]["cluster"]["server"]) == (spec["apiVersion"], "https://c:6443/")


@pytest.mark.parametrize(
    ("spec", "sentence", "remedy"),
    [
        pytest.param(
            {"command": "no-such-plugin"}, "cannot be started: No such file", "install it", id="not installed"
        ),
        pytest.param(
            {"command": "no-such-plugin", "installHint": "Get it from IT.\nAsk."},
            "cannot be started",
            "Get it from IT.",
            id="not installed, with a hint",
        ),
        pytest.param(
            {"command": "sh", "args": ["-c", "echo no session >&2; exit 3"]},
            "exited with 3: no session",
            "log in again",
            id="it fails",
        ),
        pytest.param(
            {"command": "echo", "args": ["x"]}, "printed no ExecCredential", "log in", id="it prints nonsense"
        ),
        pytest.param(
            {"command": "echo", "args": ['{"status": {}}']},
            "printed no token and no certificate",
            "log in",
            id="it gives nothing",
        ),
        pytest.param({}, "has no command", "exec.command", id="it is not named"),
    ],
)
def test_a_plugin_that_gives_nothing(tmp_path: Path, spec: dict[str, Any], sentence: str, remedy: str) -> None:
    with pytest.raises(NoCluster) as caught:
        read(written(tmp_path, user(exec={"apiVersion": "v1", **spec})))
    assert sentence in caught.value.message
    assert remedy in caught.value.remedy


def test_the_cluster_of_a_company(tmp_path: Path) -> None:
    fields = {"proxy-url": "http://proxy:3128", "tls-server-name": "api.inside", "insecure-skip-tls-verify": True}
    found = read(written(tmp_path, cluster(**fields))).configuration
    assert (found.proxy, found.tls_server_name, found.verify_ssl) == ("http://proxy:3128", "api.inside", False)


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        pytest.param("https://c:6443", "http://env:3128", id="a server elsewhere"),
        pytest.param("https://127.0.0.1:6443", None, id="this machine"),
        pytest.param("https://localhost:6443", None, id="this machine by name"),
    ],
)
def test_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, proxy: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://env:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert read(written(tmp_path, cluster(server=server))).configuration.proxy == proxy


@pytest.mark.parametrize(
    ("fields", "options", "headers"),
    [
        pytest.param({}, {}, [], id="no impersonation"),
        pytest.param(
            {"as": "ann", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Scope/x": ["1", "2"]}},
            {},
            [
                ("Impersonate-User", "ann"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
                ("Impersonate-Extra-scope%2Fx", "1"),
                ("Impersonate-Extra-scope%2Fx", "2"),
            ],
            id="the kubeconfig's user",
        ),
        pytest.param(
            {"as": "ann", "as-groups": ["a"]},
            {"as_user": "bob", "as_groups": ("c",)},
            [("Impersonate-User", "bob"), ("Impersonate-Group", "c")],
            id="the flags go first, and entirely",
        ),
    ],
)
def test_impersonation_becomes_headers(
    tmp_path: Path, fields: dict[str, Any], options: dict[str, Any], headers: list[tuple[str, str]]
) -> None:
    assert list(read(written(tmp_path, user(token="t", **fields)), **options).headers) == headers


def test_of_several_files_the_first_current_context_decides(tmp_path: Path) -> None:
    first = written(tmp_path / "a", lambda body: (body.clear(), body.update({"current-context": "dev"})))
    second = written(tmp_path / "b", user(**{"client-certificate": "me.pem", "client-key": "me.pem"}))
    third = written(tmp_path / "c", lambda body: body.update({"current-context": "bare"}))
    (tmp_path / "b" / "me.pem").write_text("ME")
    found = read(first, second, tmp_path / "missing", third)
    assert (found.namespace, found.configuration.cert_file) == ("team", str(tmp_path / "b" / "me.pem"))


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        pytest.param(lambda body: body.pop("current-context"), {}, "has no current context", id="no current context"),
        pytest.param(
            lambda body: None, {"context": "prod"}, "no context named 'prod'; it has: bare, dev", id="no such context"
        ),
        pytest.param(lambda body: body.update(users=[]), {}, "no user named 'u'; it has: none", id="no such user"),
        pytest.param(cluster(server=""), {}, "the kubeconfig's cluster c has no server", id="no server"),
        pytest.param(cluster(**{"certificate-authority": "no.pem"}), {}, "no.pem", id="no such file of a CA"),
        pytest.param(
            user(**{"auth-provider": {"name": "azure"}}), {}, "auth-provider azure gave no token", id="old login"
        ),
        pytest.param(
            cluster(**{"server": "ftp://c"}),
            {},
            "server ftp://c has neither http nor https",
            id="no address of a server",
        ),
        pytest.param(
            user(**{"client-certificate-data": "abc"}),
            {},
            "client-certificate-data is not base64",
            id="half a certificate",
        ),
        pytest.param(lambda body: body.update(users=[1]), {}, "is not a kubeconfig", id="nonsense in a list"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, change: Change, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(NoCluster) as caught:
        read(written(tmp_path, change), **options)
    assert sentence in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("a: [\n", ":2:1 is not valid YAML: the file ends inside a bracket", id="half-written"),
        pytest.param("a:\n\tb: 1", ":2:1 is not valid YAML: a tab cannot indent a line: use spaces", id="a tab"),
        pytest.param("- a list", "is not a kubeconfig: it has no fields", id="a list"),
        pytest.param("hello", "is not a kubeconfig: it has no fields", id="a word"),
        pytest.param("", "is empty", id="empty"),
        pytest.param("\udcff\x00", "is a binary file", id="a binary file"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "config").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(NoCluster, match=re.escape(sentence)):
        read(tmp_path / "config")


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=f"the kubeconfig {tmp_path} cannot be read: Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("fields", "host"),
    [
        pytest.param({"server": "c:6443"}, "http://c:6443", id="a server without a scheme"),
        pytest.param({"server": "c", "insecure-skip-tls-verify": True}, "https://c", id="with a word about TLS"),
    ],
)
def test_a_server_without_a_scheme_gets_that_of_kubectl(tmp_path: Path, fields: dict[str, Any], host: str) -> None:
    path = written(tmp_path, lambda body: body["clusters"][0].update(cluster=fields))
    assert read(path).configuration.host == host


def test_a_named_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match="does not exist") as caught:
        load(ConnectOptions(kubeconfig=str(tmp_path / "no")), {})
    assert caught.value.remedy == "correct --kubeconfig"


def test_the_home_folder_is_the_last_resort(tmp_path: Path) -> None:
    written(tmp_path / ".kube")
    assert load(ConnectOptions(), {"HOME": str(tmp_path)}).namespace == "team"


def test_without_any_cluster_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match="no cluster is configured") as caught:
        load(ConnectOptions(), {"HOME": str(tmp_path)})
    assert "set KUBECONFIG" in caught.value.remedy
