"""The requests of the real cluster, against a server with scripted answers. tests/apiserver has a real server."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pytorchjob.cluster.api import LogRequest
from pytorchjob.cluster.errors import AlreadyExists, ApiServerUnreachable, JobMissing, Missing, Rejected
from pytorchjob.cluster.remote import RemoteCluster
from pytorchjob.cluster.watching import ObjectWatch
from tests.people.scripted_server import Answer, ScriptedServer, Serve, status
from tests.people.test_http import client

JOBS = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs"


def remote(server: ScriptedServer) -> RemoteCluster:
    return RemoteCluster(client(server, sleep=lambda seconds: None), "team")


def obj(name: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "namespace": "team"}
    return {"metadata": meta, **fields}


def page(*items: dict[str, Any], version: int = 1, more: str = "") -> Answer:
    meta = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return Answer({"kind": "PyTorchJobList", "apiVersion": "kubeflow.org/v1", "metadata": meta, "items": list(items)})


NOT_FOUND = status(404, 'pytorchjobs.kubeflow.org "digit" not found', "NotFound")


@pytest.mark.parametrize(
    ("answers", "remedy"),
    [
        pytest.param([page(obj("digits"))], "did you mean digits?", id="a name that is nearly right"),
        pytest.param([page(), page(obj("digit"))], "it is in another namespace: -n team", id="another namespace"),
        pytest.param([page(), page(obj("other"))], "`pytorchjob list -A` shows all jobs", id="nothing like it"),
        pytest.param(
            [page(), status(403, "no")], "`pytorchjob list -n team` shows the jobs there", id="no rights to search"
        ),
    ],
)
def test_a_missing_job_names_what_may_be_meant(serve: Serve, answers: list[Answer], remedy: str) -> None:
    with pytest.raises(JobMissing, match="no job digit in the namespace team") as caught:
        remote(serve(NOT_FOUND, *answers)).job("digit")
    assert caught.value.remedy == remedy


def test_json_of_another_program_is_no_job(serve: Serve) -> None:
    with pytest.raises(ApiServerUnreachable, match="it sends no object of Kubernetes"):
        remote(serve(Answer({"error": "log in"}))).job("digits")


def test_a_list_is_read_in_pages_and_its_items_know_their_kind(serve: Serve) -> None:
    server = serve(page(obj("a"), more="next"), page(obj("b")))
    found = remote(server).jobs("team=x")
    assert [(job["kind"], job["metadata"]["name"]) for job in found] == [("PyTorchJob", "a"), ("PyTorchJob", "b")]
    assert server.asked[1].path == f"{JOBS}?labelSelector=team%3Dx&limit=500&continue=next"


def labelled(role: str, index: int) -> dict[str, Any]:
    body = obj(f"d-{role}-{index}")
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}
    return {"metadata": {**body["metadata"], "labels": labels}}


def test_pods_come_by_role_and_index(serve: Serve) -> None:
    server = serve(page(labelled("worker", 10), labelled("worker", 2), labelled("master", 0)))
    assert [pod["metadata"]["name"] for pod in remote(server).pods("d")] == ["d-master-0", "d-worker-2", "d-worker-10"]


def test_events_come_by_time(serve: Serve) -> None:
    about = {"involvedObject": {"name": "d"}}
    server = serve(
        page(
            obj("late", lastTimestamp="2026-01-02T00:00:03Z", **about),
            obj("series", series={"lastObservedTime": "2026-01-02T00:00:02Z"}, lastTimestamp=None, **about),
            obj("new", eventTime="2026-01-02T00:00:01Z", **about),
        )
    )
    assert [event["metadata"]["name"] for event in remote(server).events(["d"])] == ["new", "series", "late"]


RESOURCES = Answer(
    {
        "resources": [
            {"kind": "ConfigMap", "name": "configmaps", "namespaced": True},
            {"kind": "Namespace", "name": "namespaces", "namespaced": False},
            {"kind": "Namespace", "name": "namespaces/status", "namespaced": False},
        ]
    }
)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        pytest.param("ConfigMap", "/api/v1/namespaces/team/configmaps", id="in a namespace"),
        pytest.param("Namespace", "/api/v1/namespaces", id="of the whole cluster"),
    ],
)
def test_an_object_of_any_kind_is_created(serve: Serve, kind: str, path: str) -> None:
    server = serve(RESOURCES, Answer({}))
    remote(server).create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}}, dry_run=True)
    assert [asked.path for asked in server.asked] == [
        "/api/v1",
        f"{path}?fieldValidation=Strict&fieldManager=pytorchjob&dryRun=All",
    ]


def test_a_kind_that_the_cluster_does_not_know(serve: Serve) -> None:
    with pytest.raises(Rejected, match="does not know the kind ConfigMop of v1") as caught:
        remote(serve(RESOURCES)).create({"apiVersion": "v1", "kind": "ConfigMop", "metadata": {"name": "x"}})
    assert caught.value.remedy == "did you mean ConfigMap?"


def test_an_object_that_exists_is_handed_over(serve: Serve) -> None:
    server = serve(RESOURCES, status(409, "x", "AlreadyExists"), Answer({"data": {"a": "1"}}))
    with pytest.raises(AlreadyExists, match="the ConfigMap x already exists") as caught:
        remote(server).create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    assert caught.value.existing == {"data": {"a": "1"}}


def test_a_job_is_changed_by_a_merge_patch(serve: Serve) -> None:
    server = serve(Answer({}))
    remote(server).patch("digits", {"spec": {"a": None}}, dry_run=True)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PATCH", f"{JOBS}/digits?fieldManager=pytorchjob&dryRun=All")
    assert (asked.header("Content-Type"), asked.body) == (["application/merge-patch+json"], {"spec": {"a": None}})


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param("digits", f"{JOBS}/digits", id="a job"),
        pytest.param("pods/digits-worker-0", "/api/v1/namespaces/team/pods/digits-worker-0", id="a pod"),
    ],
)
def test_a_job_or_a_pod_is_deleted(serve: Serve, name: str, path: str) -> None:
    server = serve(Answer({}))
    remote(server).delete(name, foreground=True)
    assert (server.asked[0].path, server.asked[0].body) == (path, {"propagationPolicy": "Foreground"})


NO_NAMES = ["", ".", "..", "../x", "a/b", "pods/", "pods/a/b", "A", "a b", "a?b", "a%2fb", "-a"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_object_can_have_is_never_sent(serve: Serve, name: str) -> None:
    server = serve(Answer({}))
    cluster = remote(server)
    for act in (cluster.delete, cluster.job, lambda name: cluster.patch(name, {})):
        with pytest.raises(Rejected, match="cannot be the name of a"):
            act(name)
    assert server.asked == []


@pytest.mark.parametrize("name", ["", "a/b", "A", ".."])
def test_a_namespace_that_cannot_exist_is_never_sent(serve: Serve, name: str) -> None:
    with pytest.raises(Rejected, match="cannot be the name of a namespace"):
        RemoteCluster(client(serve()), name)


def test_a_pod_that_is_gone_is_named(serve: Serve) -> None:
    with pytest.raises(Missing, match="the pod p does not exist in the namespace team"):
        remote(serve(status(404, "x"))).delete("pods/p")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(Answer({"a": 1}), {"a": 1}, id="an object"),
        pytest.param(status(404, "x"), None, id="it does not exist"),
        pytest.param(Answer(b"404 page not found", 404), None, id="its kind does not exist"),
        pytest.param(status(403, "no"), None, id="this person may not"),
    ],
)
def test_any_path_is_read(serve: Serve, answer: Answer, found: dict[str, int] | None) -> None:
    assert remote(serve(answer)).read("/apis/x") == found


def test_nodes_that_may_not_be_read_are_unknown(serve: Serve) -> None:
    assert remote(serve(status(403, "no"))).nodes() is None


def test_a_log_is_asked_for_as_kubectl_does(serve: Serve) -> None:
    server = serve(Answer([b"2026-01-02T03:04:05Z hello\n"]))
    since = datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=UTC)
    with remote(server).log(LogRequest("p", "pytorch", True, True, since, 7)) as lines:
        assert list(lines) == [b"2026-01-02T03:04:05Z hello\n"]
    assert server.asked[0].path == (
        "/api/v1/namespaces/team/pods/p/log?container=pytorch&timestamps=true&follow=true&previous=true"
        "&sinceTime=2026-01-02T03%3A04%3A05Z&tailLines=7"
    )


@pytest.mark.parametrize("follow", [True, False], ids=["followed", "read once"])
def test_a_log_of_a_server_that_is_silent_is_broken_and_not_waited_for(serve: Serve, follow: bool) -> None:
    server = serve(Answer([b"2026-01-02T03:04:05Z hello\n"], silent=True))
    # Without the limit that it is about, each of them would wait until the test's own time is over.
    seconds, silence = (0, 0.2) if follow else (0.2, 1e6)
    cluster = RemoteCluster(client(server, seconds=seconds), "team", silence)
    with cluster.log(LogRequest("p", "pytorch", follow)) as lines:
        assert next(lines) == b"2026-01-02T03:04:05Z hello\n"
        with pytest.raises(ApiServerUnreachable):
            next(lines)


def events(*found: tuple[str, dict[str, Any]], cut: bool = False) -> Answer:
    return Answer([json.dumps({"type": kind, "object": body}).encode() + b"\n" for kind, body in found], cut=cut)


def test_a_watch_that_gets_a_page_in_the_place_of_an_event_ends_with_a_sentence(serve: Serve) -> None:
    cluster = remote(serve(page(), Answer([b"<html>\n"])))
    with pytest.raises(ApiServerUnreachable, match="what answers is no API server"):
        list(cluster.watch())


EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        pytest.param(
            [page(obj("a", 1)), events(("MODIFIED", obj("a", 2))), events(("DELETED", obj("a", 3)))],
            ["ADDED a", "MODIFIED a", "DELETED a"],
            id="an end by the server",
        ),
        pytest.param(
            [page(obj("a", 1)), events(("MODIFIED", obj("a", 2)), cut=True), events(("ADDED", obj("b", 3)))],
            ["ADDED a", "MODIFIED a", "ADDED b"],
            id="a broken connection",
        ),
        pytest.param(
            [
                page(obj("a", 1), obj("b", 1)),
                events(("ERROR", EXPIRED)),
                page(obj("a", 1), obj("c", 5)),
                status(400, "stop"),
            ],
            ["ADDED a", "ADDED b", "DELETED b", "ADDED c"],
            id="a history that is gone: only what differs is reported",
        ),
        pytest.param(
            [page(obj("a", 1)), status(410, "too old resource version"), page(obj("a", 2)), status(400, "stop")],
            ["ADDED a", "MODIFIED a"],
            id="the same, as an answer",
        ),
        pytest.param(
            [page(obj("a", 1)), status(500, "upgrade"), events(("BOOKMARK", obj("", 8)), ("MODIFIED", obj("a", 9)))],
            ["ADDED a", "MODIFIED a"],
            id="a server that is away for a moment",
        ),
    ],
)
def test_a_watch_loses_nothing_and_repeats_nothing(serve: Serve, answers: list[Answer], seen: list[str]) -> None:
    changes = remote(serve(*answers)).watch()
    found = [f"{change.kind} {change.object['metadata']['name']}" for _, change in zip(seen, changes, strict=False)]
    assert found == seen


def test_a_watch_continues_from_the_last_event(serve: Serve) -> None:
    server = serve(page(obj("a", 1), version=4), events(("MODIFIED", obj("a", 7))), status(400, "stop"))
    with pytest.raises(Rejected):
        list(remote(server).watch("a"))
    assert [asked.path.rpartition("resourceVersion=")[2].partition("&")[0] for asked in server.asked[1:]] == ["4", "7"]
    assert all("fieldSelector=metadata.name%3Da" in asked.path for asked in server.asked)


def test_a_watch_gives_up_on_a_server_that_stays_away(serve: Serve) -> None:
    naps: list[float] = []
    http = client(serve(page(), status(500, "gone")), sleep=naps.append)
    with pytest.raises(ApiServerUnreachable):
        list(ObjectWatch(http, JOBS, {}))
    assert sum(naps) > 280
