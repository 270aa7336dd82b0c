"""The running operator and what may happen to it: killed, frozen, run twice, blind, confined to a namespace."""

import asyncio
import re
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_operator.control.apply import IN_FLIGHT
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Audit, Jobs, Kubelet, OperatorProcess
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

Start = Callable[..., OperatorProcess]
OUTAGE_SECONDS = 30.0
"""Longer than the Lease's term and than every first back-off."""


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts operators with a Lease of this test's own."""
    started: list[OperatorProcess] = []
    lease = f"test-{secrets.token_hex(4)}"

    def begin(*options: str, **env: str) -> OperatorProcess:
        started.append(OperatorProcess(control_plane, tmp_path, *options, PYTORCHJOB_LEASE_NAME=lease, **env))
        return started[-1]

    yield begin
    for operator in started:
        operator.stop()


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    return make_jobs()


async def at_least(kubelet: Kubelet, count: int) -> bool:
    return len(await kubelet.pods()) >= count


async def two_in_the_middle(start: Start, jobs: Jobs, kubelet: Kubelet) -> tuple[OperatorProcess, OperatorProcess]:
    """A leader that has made a part of a job's 100 pods, and a standby."""
    leader = start().wait_ready()
    standby = start().wait_ready(leading=False)
    jobs.apply("x", 99)
    await until_async(lambda: at_least(kubelet, 10))
    return leader, standby


def twice(audit: Audit, jobs: Jobs) -> set[str]:
    """The children that were made more than once.

    What a client asked for when it was killed may be carried out without a 201 in the audit log: a second making of the
    same name then needs that somebody deleted the first, and that is in the log.
    """
    asked = [
        request
        for request in audit.all()
        if request.namespace == jobs.namespace and request.resource in ("pods", "services")
    ]
    made = Counter(
        (request.resource, request.name) for request in asked if request.verb == "create" and request.code == 201
    )
    repeated = {name for (_, name), count in made.items() if count > 1}
    return repeated | {request.name for request in asked if request.verb.startswith("delete")}


async def test_killed_in_the_middle_of_200_pods_it_makes_the_rest_and_none_twice(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit = Audit(control_plane)
    operator = start("--no-leader-elect", PYTORCHJOB_MAX_IN_FLIGHT="4").wait_ready()  # so that the middle lasts
    jobs.apply("x", 199)
    await until_async(lambda: at_least(kubelet, 20))
    operator.kill()
    left = len(await kubelet.pods())
    assert 20 <= left < 200, "it was not killed in the middle"
    operator.start()
    operator.wait_ready()
    await until_async(lambda: at_least(kubelet, 200))
    await becomes(lambda: ("Created", "True") in jobs.conditions("x"))
    assert len(await kubelet.pods()) == 200
    assert twice(audit, jobs) == set()


async def test_a_job_deleted_while_no_operator_runs_leaves_nothing(start: Start, jobs: Jobs, kubelet: Kubelet) -> None:
    operator = start("--no-leader-elect").wait_ready()
    jobs.apply("x", 2)
    await until_async(lambda: at_least(kubelet, 3))
    assert operator.stop() == 0
    jobs.kubectl("delete", "ptj", "x")
    await becomes(lambda: jobs.count("pods", "services", "ptj") == 0)


async def test_when_the_leader_is_killed_the_other_goes_on(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit = Audit(control_plane)
    leader, standby = await two_in_the_middle(start, jobs, kubelet)
    leader.kill()
    assert not standby.leads
    await becomes(lambda: standby.leads)
    await until_async(lambda: at_least(kubelet, 100))
    assert twice(audit, jobs) == set()


async def test_a_frozen_leader_changes_nothing_after_it_wakes_and_ends(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    frozen, standby = await two_in_the_middle(start, jobs, kubelet)
    frozen.signal(signal.SIGSTOP)
    await becomes(lambda: standby.leads)
    await until_async(lambda: at_least(kubelet, 100))
    await becomes(lambda: ("Created", "True") in jobs.conditions("x"))
    standby.kill()
    jobs.kubectl("scale", "ptj", "x", "--replicas=119")
    audit = Audit(control_plane)
    frozen.signal(signal.SIGCONT)
    assert await asyncio.to_thread(frozen.process.wait, 30) != 0
    assert "the leader is now" in frozen.log
    late = [request for request in audit.operator() if request.verb not in ("list", "watch", "get")]
    # Requests that were on their way when it froze cannot be called back: their names are taken by then, and the API
    # server ends them at the end of the term, which they carry (504).
    assert [request for request in late if request.code not in (409, 504)] == []
    assert len(late) <= IN_FLIGHT
    assert len(await kubelet.pods()) == 100


async def test_when_the_lease_is_deleted_one_leads_on_in_a_later_term(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit = Audit(control_plane)
    leader, standby = await two_in_the_middle(start, jobs, kubelet)
    jobs.plane.kubectl("delete", "lease", leader.lease)
    assert await asyncio.to_thread(leader.process.wait, 30) != 0
    assert re.search("it was deleted|the leader is now", leader.log)
    await becomes(lambda: standby.leads)
    await until_async(lambda: at_least(kubelet, 100))
    assert twice(audit, jobs) == set()
    assert _term(standby.log) > _term(leader.log)


def _term(log: str) -> int:
    return int(re.findall(r"leading, term (\d+)", log)[-1])


async def test_an_api_server_that_was_away_costs_no_process_and_no_job(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    operator = start().wait_ready()
    jobs.apply("x", 2)
    await until_async(lambda: at_least(kubelet, 3))
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))
    control_plane.stop_program("kube-apiserver", kill=True)
    await asyncio.sleep(OUTAGE_SECONDS)
    assert operator.http("/healthz")[0] == 200
    control_plane.start_apiserver()  # not in a helper thread: the program would end together with that
    await kubelet.report("Succeeded")
    jobs.apply("second", 2)
    await becomes(lambda: jobs.condition("x", "Succeeded"), story=lambda: operator.log[-3000:])
    await until_async(lambda: at_least(kubelet, 6))
    assert operator.process.poll() is None


async def test_confined_to_a_namespace_it_serves_that_and_asks_for_no_other(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet, make_jobs: Callable[[], Jobs]
) -> None:
    audit, elsewhere = Audit(control_plane), make_jobs()
    operator = start("--no-leader-elect", "-n", jobs.namespace).wait_ready()
    elsewhere.apply("x", 1)
    jobs.apply("x", 1)
    await until_async(lambda: at_least(kubelet, 2))
    await becomes(lambda: jobs.condition("x", "Created"))
    assert elsewhere.count("pods") == 0
    assert operator.stop() == 0
    assert {asked.namespace for asked in audit.operator() if asked.resource} == {jobs.namespace}
