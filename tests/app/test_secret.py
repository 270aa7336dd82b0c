"""The coordinator's credentials at start, on an API server that does everything that one can do."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from aiohttp import web

from pytorchjob_operator.app.operator import now
from pytorchjob_operator.app.secret import load_credentials, renew_credentials
from pytorchjob_operator.errors import Conflict, NotFound, OperatorError, RequestRefused
from pytorchjob_operator.kube import credentials
from pytorchjob_operator.kube.client import ApiClient
from tests.fakes.apiserver import FakeApi, Request, failure

PLACE = ("system", "coordinator")
SECRETS = "api/v1/secrets"


async def test_the_first_makes_them_and_the_next_reads_them(api: FakeApi, client: ApiClient) -> None:
    made = await load_credentials(client, *PLACE)
    assert await load_credentials(client, *PLACE) == made
    assert [request.verb for request in api.requests] == ["get", "create", "get"]
    assert {request.path for request in api.requests} == {
        "/api/v1/namespaces/system/secrets",
        "/api/v1/namespaces/system/secrets/coordinator",
    }


async def test_replicas_that_start_together_end_with_the_same(client: ApiClient) -> None:
    loaded = await asyncio.gather(*(load_credentials(client, *PLACE) for _ in range(5)))
    assert len({found.ca for found in loaded}) == 1


async def test_what_somebody_has_put_there_is_used(api: FakeApi, client: ApiClient) -> None:
    made = credentials.make(now())
    api.put(SECRETS, credentials.to_secret(made, *PLACE))
    assert await load_credentials(client, *PLACE) == made
    assert api.count("create") == 0


async def test_a_broken_one_is_named_and_left_as_it_is(api: FakeApi, client: ApiClient) -> None:
    body = credentials.to_secret(credentials.make(now()), *PLACE)
    del body["data"]["tls.crt"]
    api.put(SECRETS, body)
    with pytest.raises(OperatorError, match=r"Secret system/coordinator: tls\.crt is missing"):
        await load_credentials(client, *PLACE)
    assert [request.verb for request in api.requests] == ["get"]


def refusing(verb: str, status: int, reason: str) -> Callable[[Request], web.Response | None]:
    def fault(request: Request) -> web.Response | None:
        return failure(status, reason, "its words") if request.verb == verb else None

    return fault


@pytest.mark.parametrize(
    ("verb", "right"),
    [
        pytest.param("get", "permission to get secrets named coordinator in namespace system", id="to read it"),
        pytest.param("create", "permission to create secrets in namespace system", id="to make it"),
    ],
)
async def test_a_right_that_is_missing_is_named(api: FakeApi, client: ApiClient, verb: str, right: str) -> None:
    api.failing = refusing(verb, 403, "Forbidden")
    with pytest.raises(OperatorError, match=f"{right}.*: its words"):
        await load_credentials(client, *PLACE)


async def test_another_refusal_keeps_the_servers_words(api: FakeApi, client: ApiClient) -> None:
    api.failing = refusing("create", 422, "Invalid")
    with pytest.raises(RequestRefused, match="its words"):
        await load_credentials(client, *PLACE)


async def test_a_namespace_that_is_not_there_is_told(api: FakeApi, client: ApiClient) -> None:
    api.failing = refusing("create", 404, "NotFound")
    with pytest.raises(NotFound, match="its words"):
        await load_credentials(client, *PLACE)


async def test_an_api_server_that_is_away_is_waited_for(
    api: FakeApi, client: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [failure(503, "ServiceUnavailable", "away") for _ in range(3)]
    api.failing = lambda request: faults.pop() if faults else None
    with caplog.at_level(logging.WARNING):
        assert (await load_credentials(client, *PLACE)).certificate_pem
    assert [record.getMessage() for record in caplog.records if "away" in record.getMessage()] == [
        "waiting for the Secret system/coordinator of the coordinator: ServiceUnavailable (503): away"
    ]


async def test_the_leader_publishes_the_next_certificate_and_others_read_it(api: FakeApi, client: ApiClient) -> None:
    made = await load_credentials(client, *PLACE)
    assert await renew_credentials(client, *PLACE, made, None) == made
    renewed = await renew_credentials(client, *PLACE, made, client)
    assert renewed.ca.startswith(made.ca[:100])
    assert renewed.next_certificate_pem
    assert await renew_credentials(client, *PLACE, made, None) == renewed
    assert api.count("update") == 1


async def test_labels_that_others_have_added_stay(api: FakeApi, client: ApiClient) -> None:
    made = credentials.make(now())
    body = credentials.to_secret(made, *PLACE)
    body["metadata"]["labels"] = {"team": "a"}
    api.put(SECRETS, body)
    assert (await renew_credentials(client, *PLACE, made, client)).next_certificate_pem
    (stored,) = api.objects[SECRETS].values()
    assert stored["metadata"]["labels"] == {"team": "a"}


async def test_of_two_leaders_the_one_that_is_late_changes_nothing(api: FakeApi, client: ApiClient) -> None:
    made = await load_credentials(client, *PLACE)
    api.failing = refusing("update", 409, "Conflict")
    with pytest.raises(Conflict):
        await renew_credentials(client, *PLACE, made, client)


async def test_the_right_to_update_that_is_missing_is_named(api: FakeApi, client: ApiClient) -> None:
    made = await load_credentials(client, *PLACE)
    api.failing = refusing("update", 403, "Forbidden")
    with pytest.raises(OperatorError, match="permission to update secrets named coordinator in namespace system"):
        await renew_credentials(client, *PLACE, made, client)


async def test_a_secret_that_is_gone_is_written_again_by_the_leader_alone(api: FakeApi, client: ApiClient) -> None:
    """Else the next leader would make certificates that no running pod trusts."""
    made = await load_credentials(client, *PLACE)
    api.objects[SECRETS].clear()
    assert await renew_credentials(client, *PLACE, made, None) == made
    assert api.count("create") == 1
    renewed = await renew_credentials(client, *PLACE, made, client)
    assert renewed.certificate_pem == made.certificate_pem
    assert await load_credentials(client, *PLACE) == renewed


async def test_the_right_to_write_it_again_that_is_missing_is_named(api: FakeApi, client: ApiClient) -> None:
    made = await load_credentials(client, *PLACE)
    api.objects[SECRETS].clear()
    api.failing = refusing("create", 403, "Forbidden")
    with pytest.raises(OperatorError, match="permission to create secrets in namespace system"):
        await renew_credentials(client, *PLACE, made, client)
