"""The event recorder: few events, well formed, and no caller waits for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.recorder import Involved, Recorder, RecorderSettings, Reporter
from pytorchjob_operator.names import EventType
from tests.fakes.apiserver import FakeApi, failure
from tests.waiting import SECONDS

EVENTS = "api/v1/events"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = Involved("kubeflow.org/v1", "PyTorchJob", "ns", "job", "uid-1")


def recorder(client: ApiClient, settings: RecorderSettings | None = None, now: list[float] | None = None) -> Recorder:
    clock = now or [0.0]
    reporter = Reporter("pytorchjob-controller", "pod-1")
    return Recorder(client, reporter, lambda: clock[0], lambda: NOON, settings or RecorderSettings(per_second=1e6))


@asynccontextmanager
async def sending(sender: Recorder) -> AsyncIterator[None]:
    task = asyncio.create_task(sender.run())
    yield
    async with asyncio.timeout(SECONDS):
        await sender.drained()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def sent(api: FakeApi) -> list[dict[str, Any]]:
    return list(api.objects.get(EVENTS, {}).values())


async def test_an_event_follows_the_conventions(api: FakeApi, client: ApiClient) -> None:
    sender = recorder(client)
    async with sending(sender):
        sender.event(JOB, EventType.WARNING, "FailedCreatePod", "exceeded quota")
    (event,) = sent(api)
    assert event["metadata"].pop("name").startswith("job.")
    assert {key: value for key, value in event.items() if key != "metadata"} == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "namespace": "ns",
            "name": "job",
            "uid": "uid-1",
        },
        "type": "Warning",
        "reason": "FailedCreatePod",
        "message": "exceeded quota",
        "count": 1,
        "firstTimestamp": "2026-01-01T12:00:00Z",
        "lastTimestamp": "2026-01-01T12:00:00Z",
        "source": {"component": "pytorchjob-controller"},
        "reportingComponent": "pytorchjob-controller",
        "reportingInstance": "pod-1",
    }


async def test_repetitions_are_counted_in_place(api: FakeApi, client: ApiClient) -> None:
    sender = recorder(client)
    async with sending(sender):
        for message in ("x", "x", "y", "x"):
            sender.event(JOB, EventType.NORMAL, "Why", message)
    assert sorted((event["message"], event["count"]) for event in sent(api)) == [("x", 3), ("y", 1)]


async def test_an_event_that_the_server_forgot_is_made_again(api: FakeApi, client: ApiClient) -> None:
    sender = recorder(client)
    async with sending(sender):
        sender.event(JOB, EventType.NORMAL, "Why", "x")
        await sender.drained()
        api.objects.clear()
        sender.event(JOB, EventType.NORMAL, "Why", "x")
    assert [event["count"] for event in sent(api)] == [1]


async def test_a_flood_about_one_object_is_cut_and_others_are_heard(api: FakeApi, client: ApiClient) -> None:
    sender, other = recorder(client), JOB._replace(name="other", uid="uid-2")
    async with sending(sender):
        for index in range(40):
            sender.event(JOB, EventType.NORMAL, "Why", str(index))
        sender.event(other, EventType.NORMAL, "Why", "x")
    assert (len(sent(api)), sender.dropped) == (26, 15)


async def test_a_bucket_fills_again_slowly(api: FakeApi, client: ApiClient) -> None:
    now = [0.0]
    sender = recorder(client, now=now)
    for _ in range(26):
        sender.event(JOB, EventType.NORMAL, "Why", "x")
    now[0] = 300.0
    sender.event(JOB, EventType.NORMAL, "Why", "x")
    sender.event(JOB, EventType.NORMAL, "Why", "x")
    assert sender.dropped == 2


async def test_a_full_queue_drops_and_does_not_wait(client: ApiClient) -> None:
    sender = recorder(client, RecorderSettings(queue=3))
    for index in range(5):
        sender.event(JOB, EventType.NORMAL, "Why", str(index))
    assert sender.dropped == 2


async def test_what_the_server_refuses_is_dropped_and_the_next_is_sent(api: FakeApi, client: ApiClient) -> None:
    faults = [failure(403, "Forbidden", "the namespace is terminating")]
    api.failing = lambda request: faults.pop() if faults else None
    sender = recorder(client)
    async with sending(sender):
        sender.event(JOB, EventType.NORMAL, "Why", "refused")
        sender.event(JOB, EventType.NORMAL, "Why", "sent")
    assert ([event["message"] for event in sent(api)], sender.dropped) == (["sent"], 1)


async def test_names_and_messages_are_cut_to_what_the_server_takes(api: FakeApi, client: ApiClient) -> None:
    sender = recorder(client)
    async with sending(sender):
        sender.event(JOB._replace(name="n" * 253), EventType.NORMAL, "Why", "x" * 5000)
    (event,) = sent(api)
    assert (len(event["metadata"]["name"]), len(event["message"])) == (253, 1024)
