"""Requests: what the client sends and repeats, and every refusal as a sentence with a next step."""

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from pytorchjob.cluster.errors import (
    AlreadyExists,
    ApiServerUnreachable,
    ClusterError,
    Missing,
    NoCluster,
    NoPermission,
    NotInstalled,
    Rejected,
)
from pytorchjob.cluster.http import Http, Request
from pytorchjob.cluster.kubeconfig import Access
from tests.people.scripted_server import Answer, ScriptedServer, Serve, status
from tests.ports import free_port

GET = Request("GET", "/x")


def client(server: ScriptedServer | str, **fields: Any) -> Http:
    """A client of this server; `naps` collects its pauses."""
    url = server if isinstance(server, str) else server.url
    configuration = Configuration(host=url)
    configuration.proxy = None
    configuration.api_key["BearerToken"] = "Bearer t"
    access = Access(configuration, "team", fields.pop("headers", ()), "context dev of config")
    return Http(lambda: access, **fields)


def test_a_request_has_credentials_and_the_headers_of_impersonation(serve: Serve) -> None:
    server = serve(Answer({"ok": True}))
    headers = (("Impersonate-User", "ann"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    http = client(server, headers=headers)
    assert http.json(Request("POST", "/x", {"dryRun": "All"}, {"a": 1})) == {"ok": True}
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/x?dryRun=All", {"a": 1})
    assert asked.header("Authorization") == ["Bearer t"]
    assert (asked.header("Impersonate-User"), asked.header("Impersonate-Group")) == (["ann"], ["a", "b"])
    assert asked.header("Content-Type") == ["application/json"]
    assert asked.header("User-Agent")[0].startswith("pytorchjob/")


def test_a_busy_server_is_asked_again_when_it_says(serve: Serve) -> None:
    naps: list[float] = []
    busy = status(429, "too many requests")
    busy.headers = {"Retry-After": "3"}
    later = Answer({}, 503, {"Retry-After": "100"})
    server = serve(busy, later, Answer({"ok": True}))
    assert client(server, sleep=naps.append).json(GET) == {"ok": True}
    assert naps == [3.0, 10.0]


@pytest.mark.parametrize(
    ("answer", "method", "requests"),
    [
        pytest.param(status(429, "busy"), "POST", 6, id="a busy server refuses a write before it is carried out"),
        pytest.param(Answer({}, 503, {"Retry-After": "1"}), "POST", 1, id="a write may have been carried out"),
        pytest.param(Answer({}, 503), "GET", 1, id="a server that names no time"),
        pytest.param(status(500, "etcd is away"), "GET", 1, id="a server that fails"),
    ],
)
def test_a_server_that_stays_busy(serve: Serve, answer: Answer, method: Any, requests: int) -> None:
    server = serve(answer)
    with pytest.raises(ApiServerUnreachable):
        client(server, sleep=lambda seconds: None).json(Request(method, "/x"))
    assert len(server.asked) == requests


def test_credentials_that_have_expired_are_found_again_once(serve: Serve) -> None:
    server = serve(status(401, "Unauthorized"), Answer({"ok": True}))
    tokens = iter(["Bearer old", "Bearer new"])

    def load() -> Access:
        configuration = Configuration(host=server.url)
        configuration.proxy = None
        configuration.api_key["BearerToken"] = next(tokens)
        return Access(configuration, "team")

    assert Http(load).json(GET) == {"ok": True}
    assert [asked.header("Authorization") for asked in server.asked] == [["Bearer old"], ["Bearer new"]]


FORBIDDEN = (
    'pytorchjobs.kubeflow.org is forbidden: User "ann" cannot list resource "pytorchjobs" in API group'
    ' "kubeflow.org" in the namespace "team"'
)
NODES = 'nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" at the cluster scope'
CAUSES = [
    {"field": "spec.a", "message": "must be 1"},
    {"field": "spec.b", "message": "is required"},
    {"field": "spec.a", "message": "must be 1"},
]


@pytest.mark.parametrize(
    ("answer", "kind", "sentence", "remedy"),
    [
        pytest.param(status(401, "Unauthorized"), NoCluster, "does not accept your credentials", "log in", id="401"),
        pytest.param(
            status(403, FORBIDDEN, "Forbidden"),
            NoPermission,
            "ann may not list pytorchjobs.kubeflow.org in the namespace team",
            "kubectl auth can-i list pytorchjobs.kubeflow.org -n team",
            id="403 names verb, resource and namespace",
        ),
        pytest.param(
            status(403, NODES, "Forbidden"),
            NoPermission,
            "ann may not list nodes in the whole cluster",
            "can-i",
            id="403",
        ),
        pytest.param(status(403, "exceeded quota: q"), Rejected, "exceeded quota: q", "quota", id="403 by a quota"),
        pytest.param(
            status(403, 'admission webhook "w" denied the request: no'),
            Rejected,
            "denied",
            "change",
            id="403 by a webhook",
        ),
        pytest.param(
            status(403, 'pods "a-worker-0" is forbidden: violates PodSecurity "restricted:latest": no', "Forbidden"),
            Rejected,
            "PodSecurity",
            "change",
            id="403 by an admission plugin",
        ),
        pytest.param(
            Answer(b"404 page not found\n", 404),
            NotInstalled,
            "does not know PyTorchJobs",
            "install",
            id="no definition",
        ),
        pytest.param(
            status(404, 'namespaces "x" not found', "NotFound"),
            Missing,
            "the namespace x does not exist",
            "kubectl create namespace x",
            id="no namespace",
        ),
        pytest.param(
            Answer(b"<html>", 404),
            ApiServerUnreachable,
            "what answers is no API server",
            "correct the server",
            id="404 of a site",
        ),
        pytest.param(
            Answer(b"<html>", 503), ApiServerUnreachable, "fails with status 503", "repeat", id="503 of a proxy"
        ),
        pytest.param(Answer(b"<html>", 401), NoCluster, "your credentials", "log in", id="401 of a proxy"),
        pytest.param(Answer(b"<html>", 403), NoPermission, "refuses it: it is forbidden", "ask", id="403 of a proxy"),
        pytest.param(
            Answer(b"x", 302), ApiServerUnreachable, "a redirection, with status 302", "correct", id="a redirection"
        ),
        pytest.param(
            Answer(b"<html>"),
            ApiServerUnreachable,
            "something else than an object in JSON",
            "log in",
            id="a login page",
        ),
        pytest.param(
            Answer([b"[]"]), ApiServerUnreachable, "something else than an object", "correct", id="another program"
        ),
        pytest.param(status(404, 'pods "p" not found', "NotFound"), Missing, 'pods "p" not found', "", id="no pod"),
        pytest.param(
            status(409, "x", "AlreadyExists", kind="pytorchjobs", name="digits"),
            AlreadyExists,
            "pytorchjobs digits already exists",
            "another name",
            id="the name is taken",
        ),
        pytest.param(
            status(409, "the object has been modified", "Conflict"),
            ClusterError,
            "another client changed it",
            "repeat",
            id="a conflict",
        ),
        pytest.param(
            status(422, "invalid", "Invalid", causes=CAUSES),
            Rejected,
            "\n  spec.a: must be 1\n  spec.b: is required",
            "correct these fields",
            id="422 names each field once",
        ),
        pytest.param(status(400, "unknown field"), Rejected, "unknown field", "", id="400"),
        pytest.param(
            Answer(b"<html>no</html>", 502),
            ApiServerUnreachable,
            "fails with status 502",
            "repeat",
            id="a proxy's page",
        ),
        pytest.param(Answer(b"teapot", 418), ClusterError, "refuses it with 418: teapot", "", id="anything else"),
    ],
)
def test_a_refusal_is_a_sentence_with_a_next_step(
    serve: Serve, answer: Answer, kind: type[ClusterError], sentence: str, remedy: str
) -> None:
    with pytest.raises(kind) as caught:
        client(serve(answer)).json(GET)
    assert sentence in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        pytest.param(lambda: f"http://127.0.0.1:{free_port()}", "it refuses connections", id="a dead server"),
        pytest.param(lambda: "http://no-such-host.invalid", "its name is unknown", id="a name that DNS does not know"),
        pytest.param(lambda: f"https://127.0.0.1:{free_port()}", "it refuses connections", id="a dead server with TLS"),
    ],
)
def test_a_server_that_does_not_answer(url: Callable[[], str], sentence: str) -> None:
    with pytest.raises(ApiServerUnreachable, match=sentence) as caught:
        client(url()).json(GET)
    assert "context dev of config" in caught.value.message
    assert caught.value.remedy


def test_a_server_without_tls_is_named(serve: Serve) -> None:
    with pytest.raises(ApiServerUnreachable, match="does not answer"):
        client(serve().url.replace("http://", "https://")).json(GET)


def test_a_proxy_that_is_away() -> None:
    configuration = Configuration(host="https://c:6443")
    configuration.proxy = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ApiServerUnreachable, match="proxy"):
        Http(lambda: Access(configuration, "team")).json(GET)


def test_the_servers_warnings_are_passed_on(serve: Serve) -> None:
    heard: list[str] = []
    server = serve(Answer({}, headers={"Warning": '299 - "spec.\\"a\\" is old"'}))
    client(server, warn=heard.append).json(GET)
    assert heard == ['spec."a" is old']


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a\n", b"b\n"], id="two lines"),
        pytest.param([b"a", b"b\nc", b"d"], [b"ab\n", b"cd"], id="lines in pieces, the last without an end"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_stream_is_its_lines(serve: Serve, parts: list[bytes], lines: list[bytes]) -> None:
    with client(serve(Answer(parts))).lines(GET) as found:
        assert list(found) == lines


def test_a_stream_that_breaks_is_an_error_after_its_lines(serve: Serve) -> None:
    found: list[bytes] = []
    with pytest.raises(ApiServerUnreachable), client(serve(Answer([b"a\nhalf"], cut=True))).lines(GET) as lines:
        found.extend(lines)
    assert found == [b"a\n"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer({}, 429, {"Retry-After": "\u00b2".encode().decode("latin-1")}),
        Answer({}, 429, {"Retry-After": "\u00b2"}),
        Answer(b"[" * 200_000, 200),
        Answer(b'{"a":' * 200_000, 500),
        Answer({"details": {"causes": ["x"]}, "message": {"a": 1}}, 422),
        Answer({"details": ["x"], "reason": "AlreadyExists"}, 409),
        Answer({"details": 7}, 403),
    ],
)
def test_a_hostile_answer_is_an_error_of_the_cluster(serve: Serve, answer: Answer) -> None:
    with pytest.raises(ClusterError):
        client(serve(answer), sleep=lambda seconds: None).json(GET)
