"""The API server's address, and the identity of the client."""

import base64
import copy
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.kubeconfig import from_kubeconfig

API = "client.authentication.k8s.io/v1"
CREDENTIAL = {"apiVersion": API, "kind": "ExecCredential"}
KUBECONFIG: dict[str, Any] = {
    "current-context": "dev",
    "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://c:6443/", "certificate-authority": "ca.pem"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}


def written(folder: Path, change: Callable[[Any], None] = lambda body: None, name: str = "config") -> Path:
    body = copy.deepcopy(KUBECONFIG)
    change(body)
    (folder / "ca.pem").write_bytes(b"CA")
    (folder / name).write_text(yaml.safe_dump(body))
    return folder / name


def _only_the_current_context(body: Any) -> None:
    body.clear()
    body["current-context"] = "dev"


def user(**fields: Any) -> Callable[[Any], None]:
    return lambda body: body["users"][0].update(user=fields)


def cluster(**fields: Any) -> Callable[[Any], None]:
    return lambda body: body["clusters"][0]["cluster"].update(fields)


async def test_the_current_context(tmp_path: Path) -> None:
    found = from_kubeconfig([written(tmp_path)])
    assert (found.server, found.namespace, found.ca, found.insecure) == ("https://c:6443", "team", b"CA", False)
    assert await found.token() == "secret"


async def test_a_secret_is_not_printed(tmp_path: Path) -> None:
    assert "secret" not in repr(from_kubeconfig([written(tmp_path)]))


def test_client_certificates_inline_and_as_files(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"KEY")
    inline = base64.b64encode(b"CERT").decode()
    path = written(tmp_path, user(**{"client-certificate-data": inline, "client-key": "key.pem"}))
    found = from_kubeconfig([path])
    assert (found.certificate, found.key) == (b"CERT", b"KEY")


async def test_a_token_file_is_read_again_when_it_was_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    found = from_kubeconfig([written(tmp_path, user(tokenFile="token"))])
    first = await found.token()
    (tmp_path / "token").write_text("two\n")
    assert (first, await found.token(), await found.token(fresh=True)) == ("one", "one", "two")


def printing(credential: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A plugin that prints this with $WHO, and notes each run."""
    text = json.dumps(credential | CREDENTIAL).replace('"', '\\"')
    script = f'echo run >> {folder}/runs; RUNS=$(grep -c run {folder}/runs); echo "{text}"'
    env = [{"name": "WHO", "value": "me"}]
    return {"apiVersion": API, "command": "sh", "args": ["-c", script], "env": env}


async def test_a_plugin_is_asked_for_a_token(tmp_path: Path) -> None:
    plugin = printing({"status": {"token": "$WHO"}}, tmp_path)
    found = from_kubeconfig([written(tmp_path, user(exec=plugin))])
    assert await found.token() == "me"


async def test_a_plugin_is_run_again_when_its_token_was_refused(tmp_path: Path) -> None:
    found = from_kubeconfig([written(tmp_path, user(exec=printing({"status": {"token": "t$RUNS"}}, tmp_path)))])
    assert [await found.token(), await found.token(), await found.token(fresh=True)] == ["t1", "t1", "t2"]


@pytest.mark.parametrize(
    ("expires", "runs"),
    [
        pytest.param(None, 1, id="no expiry: it is used for a while"),
        pytest.param("2999-01-01T00:00:00Z", 1, id="it is used until it expires"),
        pytest.param("2001-01-01T00:00:00Z", 4, id="it has expired: the plugin runs again for each request"),
    ],
)
async def test_a_token_of_a_plugin_is_used_until_it_expires(tmp_path: Path, expires: str | None, runs: int) -> None:
    plugin = printing({"status": {"token": "t"} | ({"expirationTimestamp": expires} if expires else {})}, tmp_path)
    found = from_kubeconfig([written(tmp_path, user(exec=plugin))])
    assert [await found.token() for _ in range(3)] == ["t"] * 3
    assert (tmp_path / "runs").read_text().count("run") == runs


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        pytest.param({"apiVersion": API, "command": "no-such-plugin"}, "no-such-plugin", id="it is not installed"),
        pytest.param({"apiVersion": API, "command": "false"}, "process returned 1", id="it fails"),
        pytest.param(
            {"apiVersion": API, "command": "echo", "args": ["{}"]}, "malformed", id="it prints something else"
        ),
    ],
)
def test_a_plugin_that_gives_no_token(
    tmp_path: Path, plugin: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OperatorError, match="gave no token and no certificate; the log shows why"):
        from_kubeconfig([written(tmp_path, user(exec=plugin))])
    assert words in caplog.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda body: body.pop("current-context"), "current-context is not set", id="no current context"),
        pytest.param(lambda body: body.update(users=[]), "users has no entry named 'u'", id="a user that is missing"),
        pytest.param(cluster(server=""), r"cluster\.server is missing", id="no server"),
        pytest.param(cluster(**{"certificate-authority": "no.pem"}), r"cannot be used: .*no\.pem", id="a missing CA"),
        pytest.param(cluster(**{"proxy-url": "http://p"}), r"cluster\.proxy-url is not supported", id="a proxy"),
        pytest.param(user(username="me"), r"user\.username is not supported", id="a password"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Callable[[Any], None], words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        from_kubeconfig([written(tmp_path, change)])


@pytest.mark.parametrize("field", ["certificate-authority-data", "client-certificate-data"])
def test_a_certificate_that_is_none_is_not_usable(tmp_path: Path, field: str) -> None:
    nonsense = base64.b64encode(b"CERT").decode()
    change = cluster(**{field: nonsense}) if "authority" in field else user(**{field: nonsense, "client-key": "ca.pem"})
    with pytest.raises(OperatorError, match=r"https://c:6443: .* unusable"):
        from_kubeconfig([written(tmp_path, change)]).ssl_context()


def test_insecure_trusts_anybody() -> None:
    context = ApiEndpoint("https://c", insecure=True).ssl_context()
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize("text", ["- a list", "a: [", ""])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(OperatorError, match="not"):
        from_kubeconfig([tmp_path / "config"])


def test_of_several_files_the_first_wins(tmp_path: Path) -> None:
    first = written(tmp_path, _only_the_current_context, "first")
    second = written(tmp_path, name="second")
    found = config.load({"KUBECONFIG": os.pathsep.join([str(first), str(second)])})
    assert found.server == "https://c:6443"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    for name, text in {"token": "t\n", "ca.crt": "CA", "namespace": "here\n"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def test_in_a_pod_the_service_account_speaks(account: Path) -> None:
    found = config.load({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, account)
    assert (found.server, found.namespace, found.ca) == ("https://[fd00::1]:6443", "here", b"CA")
    assert await found.token() == "t"


def test_kubeconfig_goes_before_the_service_account(account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(written(account))}
    assert config.load(environ, account).namespace == "team"


def test_the_home_folder_is_the_last_resort(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube")
    assert config.load({"HOME": str(tmp_path)}, tmp_path / "none").namespace == "team"


def test_no_cluster_at_all_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="KUBECONFIG is not set"):
        config.load({"HOME": str(tmp_path)}, tmp_path / "none")


def test_in_a_pod_the_package_that_reads_kubeconfigs_is_not_loaded(account: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pytorchjob_operator.kube import config;"
        f"config.load({{'KUBERNETES_SERVICE_HOST': 'x'}}, Path({str(account)!r}));"
        "print([name for name in ('kubernetes', 'yaml') if name in sys.modules])"
    )
    env = {"PYTHONPATH": str(Path(config.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
