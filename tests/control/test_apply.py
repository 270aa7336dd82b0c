"""The policies that delete: suspension, restarts, deadline, clean-up and TTL, as requests to an API server."""

import pytest
from aiohttp import web

from pytorchjob_operator.errors import RequestRefused
from pytorchjob_operator.model import ElasticStatus, JobStatus, ProgressStatus
from tests.control.world import JOBS, PODS, SERVICES, World
from tests.factories import JOB_UID, at, make_job
from tests.fakes.apiserver import Request, failure

PAIR = ["x-master-0", "x-worker-0"]


async def started(world: World, restart: str = "OnFailure", **run_policy: object) -> None:
    """A job of two pods that run, with a status that shows it."""
    world.submit(make_job(restart=restart, runPolicy=run_policy))
    await world.reconcile()
    world.report("Running")
    await world.reconcile()
    world.api.requests.clear()


async def passes(world: World, count: int = 3) -> float | None:
    """Several passes; each observes what the previous pass has done."""
    for _ in range(count):
        world.refresh()
        wait = await world.reconcile()
    return wait


def order(world: World) -> list[str]:
    """What was written, in its order: `delete pods`, `patch status`."""
    paths = (
        (request.verb, request.path.split("/")) for request in world.api.requests if request.verb in ("patch", "delete")
    )
    return [f"{verb} {path[-1] if verb == 'patch' else path[-2]}" for verb, path in paths if "events" not in path]


async def test_a_suspension_takes_pods_and_service_and_shows_in_the_status(world: World) -> None:
    await started(world)
    world.edit(suspend=True)
    await passes(world)
    assert (world.pods, world.api.objects[SERVICES]) == ([], {})
    assert world.conditions == {"Created": "PyTorchJobCreated", "Suspended": "PyTorchJobSuspended"}
    assert world.asked()["delete", "pods"] == 2
    assert world.asked()["delete", "services"] == 1
    assert order(world)[0] == "patch status"
    assert world.events[-2:] == ["PyTorchJobSuspended", "SuccessfulDeletePod"]


async def test_a_suspended_job_costs_nothing_more(world: World) -> None:
    await started(world)
    world.edit(suspend=True)
    await passes(world)
    world.api.requests.clear()
    assert (await passes(world), world.api.requests) == (None, [])


async def test_a_job_that_is_made_suspended_costs_one_status_write(world: World) -> None:
    world.submit(make_job(runPolicy={"suspend": True}))
    await passes(world)
    assert world.asked() == {("patch", "pytorchjobs/status"): 1}
    assert world.job.status.start_time is None


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
async def test_a_job_resumed_while_its_pods_still_leave_waits_for_their_names(world: World, restart: str) -> None:
    await started(world, restart)
    world.linger()
    world.edit(suspend=True)
    await passes(world)
    world.wait(10)
    world.edit(suspend=False)
    await passes(world)
    assert (world.asked()["create", "pods"], world.conditions) == (0, {"Created": "PyTorchJobCreated"})
    for name in PAIR:
        world.api.remove(PODS, name, "ns")
    await passes(world)
    assert (sorted(world.pods), world.job.status.start_time) == (PAIR, at(10))
    world.report("Running")
    await passes(world)
    assert world.conditions == {"Created": "PyTorchJobCreated", "Running": "PyTorchJobRunning"}


async def test_a_restart_is_counted_before_the_pod_is_deleted(world: World) -> None:
    await started(world, backoffLimit=5)
    world.report("Failed", "x-worker-0")
    await passes(world, 2)
    assert order(world)[:2] == ["patch status", "delete pods"]
    assert world.job.status.restarts == 1


async def test_a_crash_between_count_and_deletion_counts_once(world: World) -> None:
    await started(world, backoffLimit=5)
    world.report("Failed", "x-worker-0")
    await world.reconcile()
    world.fence.holds = lambda: world.api.count("delete") > 0
    await passes(world)
    world.fence.holds = lambda: True
    await passes(world)
    assert (world.job.status.restarts, sorted(world.pods)) == (1, PAIR)


async def test_the_budget_ends_the_job_and_keeps_the_pod_that_failed_last(world: World) -> None:
    await started(world, backoffLimit=2)
    for _ in range(2):
        world.report("Failed", "x-worker-0")
        await passes(world)
    assert "backoff limit" in world.job.status.conditions[-1].message
    assert (world.asked()["delete", "pods"], sorted(world.pods)) == (1, PAIR)


async def test_a_deadline_wakes_the_job_and_stops_its_pods(world: World) -> None:
    await started(world, activeDeadlineSeconds=60)
    world.report("Succeeded", "x-worker-0")
    await passes(world)
    world.wait(50)
    await passes(world)
    assert await passes(world) == 10.0
    world.wait(10)
    await passes(world)
    assert "active longer than specified deadline" in world.job.status.conditions[-1].message
    assert world.pods == ["x-worker-0"]


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        pytest.param(None, PAIR, 1, id="None keeps what there is"),
        pytest.param("Running", ["x-master-0"], 1, id="Running stops what runs"),
        pytest.param("All", [], 0, id="All leaves nothing"),
    ],
)
async def test_clean_up(world: World, policy: str | None, pods: list[str], services: int) -> None:
    await started(world, cleanPodPolicy=policy)
    world.report("Succeeded", "x-master-0")
    await passes(world)
    assert (world.pods, len(world.api.objects[SERVICES])) == (pods, services)
    world.api.requests.clear()
    assert (await passes(world), world.api.requests) == (None, [])


async def test_a_ttl_wakes_the_job_and_deletes_it_once_by_its_uid(world: World) -> None:
    await started(world, ttlSecondsAfterFinished=100)
    world.report("Succeeded")
    assert await passes(world) == 100.0
    world.wait(100)
    await passes(world)
    (deletion,) = [request for request in world.api.requests if request.verb == "delete"]
    assert deletion.path.endswith("/namespaces/ns/pytorchjobs/x")
    assert deletion.body["preconditions"] == {"uid": JOB_UID}
    assert world.api.objects[JOBS] == {}


async def test_a_job_made_anew_under_the_name_survives_the_ttl_of_the_old_one(world: World) -> None:
    await started(world, ttlSecondsAfterFinished=0)
    world.report("Succeeded")
    await world.reconcile()
    old = world.api.remove(JOBS, "x", "ns")
    world.api.put(JOBS, {**old, "metadata": {**old["metadata"], "uid": "uid-of-the-next"}})
    await world.reconcile()
    assert world.asked()["delete", "pytorchjobs"] == 0


async def test_what_is_no_longer_told_of_the_training_leaves_the_status(world: World) -> None:
    progress = ProgressStatus(step=1, metrics={"loss": 1, "rate": 2})
    world.submit(make_job(status=JobStatus(progress=progress, elastic=ElasticStatus(round="1.1", members=2))))
    now = JobStatus(progress=progress.model_copy(update={"metrics": {"loss": 0.5}}))
    await world.applier.patch_status(world.job, now)
    assert (world.job.status.progress, world.job.status.elastic) == (now.progress, None)


async def test_a_deletion_that_is_refused_is_told_as_one(world: World) -> None:
    await started(world, ttlSecondsAfterFinished=0)
    world.report("Succeeded")
    await world.reconcile()
    world.api.failing = forbidden
    for _ in range(2):
        with pytest.raises(RequestRefused, match="cannot delete"):
            await world.reconcile()
    assert world.events[-1] == "FailedDelete"
    assert world.events.count("FailedDelete") == 1


def forbidden(request: Request) -> web.Response | None:
    denied = failure(403, "Forbidden", 'pytorchjobs "x" is forbidden: cannot delete')
    return denied if request.verb == "delete" else None
