"""The running operator and what may happen to it: killed, frozen, doubled, blind, confined to a namespace."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_operator.kube.client import Client
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Audit, Jobs, Kubelet, OperatorProcess, eventually, wait_until

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

Start = Callable[..., OperatorProcess]
OUTAGE_SECONDS = 30.0
"""Longer than the Lease's term and than every first back-off."""


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts operators with a Lease of this test's own."""
    started: list[OperatorProcess] = []

    def begin(*options: str) -> OperatorProcess:
        started.append(OperatorProcess(control_plane, tmp_path, *options, PYTORCHJOB_LEASE_NAME=tmp_path.name.lower()))
        return started[-1]

    yield begin
    for one in started:
        one.stop()


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    return make_jobs()


@pytest.fixture
def kubelet(client: Client, jobs: Jobs) -> Kubelet:
    return Kubelet(client, jobs.namespace)


async def at_least(kubelet: Kubelet, count: int) -> bool:
    return len(await kubelet.pods()) >= count


async def test_killed_in_the_middle_of_200_pods_it_makes_the_rest_and_none_twice(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit, one = Audit(control_plane), start("--no-leader-elect").wait_ready()
    jobs.apply("x", 199)
    await eventually(lambda: at_least(kubelet, 20))
    one.kill()
    left = len(await kubelet.pods())
    assert 20 <= left < 200, "it was not killed in the middle"
    one.start()
    one.wait_ready()
    await eventually(lambda: at_least(kubelet, 200))
    await asyncio.to_thread(wait_until, lambda: ("Created", "True") in jobs.conditions("x"))
    made = audit.created(jobs.namespace)
    assert (len(await kubelet.pods()), len(made), set(made.values())) == (200, 200, {1})
    assert audit.created(jobs.namespace, "services") == {"x": 1}


async def test_a_job_deleted_while_no_operator_runs_leaves_nothing(start: Start, jobs: Jobs, kubelet: Kubelet) -> None:
    one = start("--no-leader-elect").wait_ready()
    jobs.apply("x", 2)
    await eventually(lambda: at_least(kubelet, 3))
    assert one.stop() == 0
    jobs.kubectl("delete", "ptj", "x")
    await asyncio.to_thread(wait_until, lambda: jobs.count("pods", "services", "ptj") == 0)


async def test_when_the_leader_is_killed_the_other_goes_on(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit, leader = Audit(control_plane), start().wait_ready()
    standby = start().wait_ready(leading=False)
    jobs.apply("x", 99)
    await eventually(lambda: at_least(kubelet, 10))
    leader.kill()
    assert not standby.leads
    await asyncio.to_thread(wait_until, lambda: standby.leads)
    await eventually(lambda: at_least(kubelet, 100))
    made = audit.created(jobs.namespace)
    assert (len(made), set(made.values())) == (100, {1})


async def test_a_frozen_leader_writes_nothing_after_it_wakes_and_ends(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    frozen = start().wait_ready()
    standby = start().wait_ready(leading=False)
    jobs.apply("x", 99)
    await eventually(lambda: at_least(kubelet, 10))
    frozen.signal(signal.SIGSTOP)
    await asyncio.to_thread(wait_until, lambda: standby.leads)
    await eventually(lambda: at_least(kubelet, 100))
    await asyncio.to_thread(wait_until, lambda: ("Created", "True") in jobs.conditions("x"))
    assert standby.stop() == 0
    audit, take_over = Audit(control_plane), start().wait_ready()
    jobs.kubectl("scale", "ptj", "x", "--replicas=119")
    frozen.signal(signal.SIGCONT)
    assert await asyncio.to_thread(frozen.process.wait, 30) != 0
    assert "holds it now" in frozen.log
    await eventually(lambda: at_least(kubelet, 120))
    assert set(audit.created(jobs.namespace).values()) == {1}
    assert take_over.leads


async def test_an_api_server_that_was_away_costs_no_process_and_no_job(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet
) -> None:
    one = start().wait_ready()
    jobs.apply("x", 2)
    await eventually(lambda: at_least(kubelet, 3))
    await kubelet.report("Running")
    await asyncio.to_thread(wait_until, lambda: jobs.condition("x", "Running"))
    control_plane.stop_program("kube-apiserver", kill=True)
    await asyncio.sleep(OUTAGE_SECONDS)
    assert one.http("/healthz")[0] == 200
    await asyncio.to_thread(control_plane.start_apiserver)
    await kubelet.report("Succeeded")
    jobs.apply("y", 2)
    await asyncio.to_thread(wait_until, lambda: jobs.condition("x", "Succeeded"), lambda: one.log[-3000:])
    await eventually(lambda: at_least(kubelet, 6))
    assert one.process.poll() is None


async def test_confined_to_a_namespace_it_serves_that_and_asks_for_no_other(
    control_plane: ControlPlane, start: Start, jobs: Jobs, kubelet: Kubelet, make_jobs: Callable[[], Jobs]
) -> None:
    audit, elsewhere = Audit(control_plane), make_jobs()
    one = start("--no-leader-elect", "-n", jobs.namespace).wait_ready()
    elsewhere.apply("x", 1)
    jobs.apply("x", 1)
    await eventually(lambda: at_least(kubelet, 2))
    await asyncio.to_thread(wait_until, lambda: jobs.condition("x", "Created"))
    assert elsewhere.count("pods") == 0
    assert one.stop() == 0
    assert {asked.namespace for asked in audit.operator()} == {jobs.namespace}
