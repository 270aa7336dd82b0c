"""When an elector may write, second by second, and which requests it sends for that."""

from datetime import UTC, datetime

import pytest

from pytorchjob_operator.errors import Conflict
from pytorchjob_operator.kube.lease import LeaseSettings
from tests.kube.lease_timeline import DOWN, FREE, NOW, Fault, Lease, Seen, away, lease, seen


@pytest.mark.parametrize(
    ("before", "fault", "valid"),
    [
        pytest.param(FREE, None, [(0, 60)], id="a free Lease: at once, for as long as it is renewed"),
        pytest.param(None, None, [(16, 60)], id="no Lease: after a lease duration"),
        pytest.param(lease("dead", 15), None, [(16, 60)], id="a dead leader: after a lease duration"),
        pytest.param(lease("dead", 30), None, [(30, 60)], id="a dead leader with a longer lease: after that"),
        pytest.param(lease("dead", 3600), None, [], id="a dead leader with an absurd lease: not for a minute"),
        pytest.param(lease("dead", True), None, [(16, 60)], id="a truth value is no duration"),
        pytest.param(FREE, away((5, 9)), [(0, 60)], id="a short outage costs nothing"),
        pytest.param(FREE, away((5, 20)), [(0, 14), (21, 60)], id="a server that hangs: ten seconds after a renewal"),
        pytest.param(FREE, away((5, 20), error=DOWN), [(0, 14), (20, 60)], id="a server that fails: the same"),
        pytest.param(FREE, away((0, 20)), [(20, 60)], id="a server that hangs at first"),
        pytest.param(FREE, lambda *_: 1.4, [(3, 60)], id="slow answers, in time"),
        pytest.param(FREE, lambda *_: 3.1, [], id="slow answers, too late: none counts"),
        pytest.param(FREE, lambda *_: ValueError("a bug"), [], id="a bug does not end it"),
    ],
)
def test_when_it_may_write(before: Lease | None, fault: Fault | None, valid: list[tuple[int, int]]) -> None:
    found = seen(before, 60, fault=fault)
    assert (found.valid, found.end) == (valid, "")
    assert found.elector.acquired.is_set() is bool(valid)


def test_a_lease_of_more_than_a_minute_counts_as_one_of_a_minute() -> None:
    assert seen(lease("dead", 3600), 80).valid == [(60, 80)]


@pytest.mark.parametrize(
    ("before", "fault", "requests"),
    [
        pytest.param(FREE, None, "get 0, update 0, update 2, update 4, update 6", id="one for each renewal"),
        pytest.param(None, None, "get 0, create 0, update 2, update 4, update 6", id="it creates a Lease once"),
        pytest.param(lease("other", 15), None, "get 0, get 2, get 4, get 6", id="another process' Lease is read"),
        pytest.param(
            FREE, away((2, 5), error=DOWN), "get 0, update 0, update 2, get 4, get 6, update 6", id="after a failure"
        ),
        pytest.param(FREE, away((2, 5)), "get 0, update 0, update 2, get 7, update 7", id="after one that hangs"),
    ],
)
def test_which_requests_it_sends(before: Lease | None, fault: Fault | None, requests: str) -> None:
    assert sent(seen(before, 8, fault=fault)) == requests


def sent(found: Seen) -> str:
    """Return the requests, without those at its end."""
    return ", ".join(request for request in found.server.requests if not request.endswith(f" {found.seconds}"))


@pytest.mark.parametrize(
    ("hangs", "fails", "requests"),
    [
        pytest.param((8, 60), (2, 8), "update 2, get 4, get 6, get 8, get 12, get 17", id="a request ends with it"),
        pytest.param((2, 3), (3, 14), "update 2, get 7, get 9, get 10, get 12, get 14", id="the next one begins then"),
    ],
)
def test_the_requests_around_the_fall_of_the_fence(
    hangs: tuple[int, int], fails: tuple[int, int], requests: str
) -> None:
    slow, down = away(hangs), away(fails, error=DOWN)
    found = seen(FREE, 20, fault=lambda now, verb: slow(now, verb) or down(now, verb))
    assert sent(found).startswith(f"get 0, update 0, {requests}")


@pytest.mark.parametrize(
    ("change", "valid", "end"),
    [
        pytest.param(lease("thief"), [(0, 6)], "the leader is now thief", id="another process holds it"),
        pytest.param(lease(""), [(0, 6)], "the leader is now no process", id="no process holds it"),
        pytest.param(None, [(0, 6)], "it was deleted, and another process may create it", id="it was deleted"),
        pytest.param(lease("ours", uid="new"), [(0, 6)], "it was deleted and created again", id="it is another one"),
        pytest.param(lease("ours"), [(0, 30)], "", id="it has changed, but is still its own"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["it renews", "it comes back after an outage"])
def test_what_becomes_of_a_leader_when_its_lease_changes(
    change: Lease | None, valid: list[tuple[int, int]], end: str, late: bool
) -> None:
    found = seen(FREE, 30, {4: change}, away((4, 21), error=DOWN) if late else None)
    assert found.end == (f"lease leader: {end}" if end else "")
    if not late:
        assert found.valid == valid
    assert bool(found.valid[1:]) is (late and not end)


@pytest.mark.parametrize(
    ("before", "term"),
    [
        pytest.param(FREE, NOW, id="the time"),
        pytest.param(lease(transitions=NOW), NOW + 1, id="one more than the last one"),
        pytest.param(lease(transitions=NOW + 366 * 24 * 3600), NOW + 366 * 24 * 3600 + 1, id="a clock was wrong"),
        pytest.param(lease(transitions=NOW + 366 * 24 * 3600 + 1), NOW, id="what no leader wrote is ignored"),
        pytest.param(lease(transitions=True), NOW, id="a truth value is ignored"),
        pytest.param(lease(transitions="9" * 12), NOW, id="a text is ignored"),
        pytest.param(lease(transitions=float(NOW + 5)), NOW + 6, id="a fraction is rounded down"),
        pytest.param(lease(transitions=2**63), NOW, id="a number without bounds is ignored"),
    ],
)
def test_the_term(before: Lease, term: int) -> None:
    found = seen(before, 3)
    assert (found.elector.term, found.spec["leaseTransitions"]) == (term, term)


def test_a_term_that_the_server_refuses_is_written_as_the_greatest_that_it_takes() -> None:
    wall = datetime(2037, 12, 1, tzinfo=UTC)
    found = seen(lease(transitions=2**31 + 5), 3, wall=wall)
    assert (found.elector.term, found.spec["leaseTransitions"]) == (2**31 + 6, 2**31 - 1)


def test_the_term_of_a_lease_that_is_gone_is_not_repeated() -> None:
    found = seen(lease("other", 15, NOW + 50), 40, {3: None})
    assert found.elector.term == NOW + 51


def test_what_is_written_in_the_lease() -> None:
    found = seen(lease(more="kept"), 5)
    assert found.server.held == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "ns", "uid": "first", "labels": {"a": "b"}, "resourceVersion": "4"},
        "spec": {
            "holderIdentity": "ours",
            "leaseDurationSeconds": 15,
            "leaseTransitions": NOW,
            "acquireTime": "2026-01-01T12:00:00.000000Z",
            "renewTime": "2026-01-01T12:00:04.000000Z",
            "more": "kept",
        },
    }


@pytest.mark.parametrize(
    ("before", "fault", "after"),
    [
        pytest.param(FREE, None, ("", 1), id="a leader: the next one starts at once"),
        pytest.param(lease("other", 15), None, ("other", 15), id="no leader: nothing"),
        pytest.param(None, None, ("ours", 15), id="not a leader yet: nothing"),
        pytest.param(FREE, away((5, 9), error=DOWN), ("ours", 15), id="a leader that cannot reach it: nothing"),
    ],
)
def test_what_it_leaves_behind(before: Lease | None, fault: Fault | None, after: tuple[str, int]) -> None:
    found = seen(before, 5, fault=fault)
    assert (found.spec["holderIdentity"], found.spec["leaseDurationSeconds"]) == after
    assert found.elector.valid() is False


def test_a_server_that_hangs_delays_the_end_of_a_leader_by_one_request() -> None:
    assert seen(FREE, 5, fault=away((5, 60))).ended_at == 8


@pytest.mark.parametrize(
    ("duration", "second"),
    [
        pytest.param(30.0, 30, id="a number"),
        pytest.param("30", 16, id="a text is none"),
        pytest.param(2.0**63, 16, id="nor is one without bounds"),
        pytest.param(-30, 16, id="nor is a negative one"),
    ],
)
def test_the_duration_that_a_dead_leader_left(duration: object, second: int) -> None:
    assert seen(lease("dead", duration), 60).valid == [(second, 60)]


def test_a_lease_of_less_than_a_second_is_written_as_one_second() -> None:
    found = seen(FREE, 3, settings=LeaseSettings(duration=0.9, deadline=0.6, period=0.1, request=0.2))
    assert found.server.held is not None
    assert found.server.held["spec"]["leaseDurationSeconds"] == 1


def test_a_new_lease_of_a_server_without_uids_is_led_after_a_lease_duration() -> None:
    bare = {"metadata": {"name": "leader", "namespace": "ns"}, "spec": {"holderIdentity": "ours"}}
    assert seen(bare, 30).valid == [(16, 30)]


def test_one_that_is_created_again_meanwhile_is_waited_for_from_then() -> None:
    again = lease("ours", 15, NOW, uid="again")
    assert seen(None, 40, {8: again}).valid == [(26, 40)]


def test_the_duration_of_a_new_lease_is_over_to_the_second() -> None:
    settings = LeaseSettings(duration=14.0)
    assert seen(None, 30, settings=settings).valid == [(14, 30)]


@pytest.mark.parametrize(
    ("before", "fault", "seconds", "words"),
    [
        pytest.param(FREE, away((3, 9), error=DOWN), 5, "Internal (500): no etcd", id="a leader that may still write"),
        pytest.param(
            FREE,
            away((1, 60), error=DOWN),
            13,
            "Internal (500): no etcd; the operator writes nothing until it is renewed",
            id="a leader that may not",
        ),
        pytest.param(FREE, away((0, 9), error=DOWN), 1, "Internal (500): no etcd", id="no leader yet"),
        pytest.param(FREE, away((0, 9)), 4, "no response in time", id="a server that hangs"),
        pytest.param({"kind": "Status"}, None, 1, "BadReply: the server's response is not a Lease", id="no Lease"),
    ],
)
def test_what_it_logs_of_a_failure(
    caplog: pytest.LogCaptureFixture, before: Lease, fault: Fault | None, seconds: int, words: str
) -> None:
    seen(before, seconds, fault=fault)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings[-1] == f"lease leader: {words}"


def test_before_it_leads_it_has_no_term() -> None:
    assert seen(lease("other", 15), 3).elector.term == 0


def test_a_lease_that_changes_once_while_it_is_written_is_written_again_at_once() -> None:
    conflicts = [Conflict(409, "Conflict", "it has changed")]
    found = seen(FREE, 3, fault=lambda _now, verb: conflicts.pop() if verb == "update" and conflicts else None)
    assert (found.valid, sent(found)) == ([(0, 3)], "get 0, update 0, get 0, update 0, update 2")


def test_a_lease_that_changes_again_and_again_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    conflict = Conflict(409, "Conflict", "it has changed")
    found = seen(FREE, 3, fault=lambda _now, verb: conflict if verb == "update" else None)
    assert sent(found) == "get 0, update 0, get 0, update 0, get 2, update 2, get 2, update 2"
    assert caplog.records == []
