"""Steps of the tests that hand jobs over between training-operator v1 and this operator."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.apiserver.operator_process import Jobs, Kubelet
from tests.waiting import becomes, until_async

Object = dict[str, Any]
Reign = Callable[..., AbstractContextManager[None]]
"""An operator serves jobs for as long as the context lasts; keywords are its environment."""

TRIO = ["x-master-0", "x-worker-0", "x-worker-1"]
"""The pods of the job, and the Services that v1 gives it."""
RUNNING = [("Created", "True"), ("Running", "True")]
SUSPENDED = [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
SUCCEEDED = [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]


async def runs(jobs: Jobs, kubelet: Kubelet, run_policy: Object | None = None, **role: Any) -> dict[str, str]:
    """A job of one Master and two Workers whose status says that it runs; returns its pods' uids."""
    jobs.apply("x", 2, run_policy, **role)
    await until_async(lambda: pods_are(kubelet, TRIO))
    await kubelet.report("Running")
    await becomes(lambda: jobs.conditions("x") == RUNNING)
    await becomes(lambda: active(jobs) == [1, 2])
    return await uids(kubelet)


async def pods_are(kubelet: Kubelet, names: list[str]) -> bool:
    return sorted(await kubelet.pods()) == names


async def uids(kubelet: Kubelet) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in (await kubelet.pods()).items()}


async def replaced(kubelet: Kubelet, name: str, before: dict[str, str]) -> bool:
    return (await uids(kubelet)).get(name, before[name]) != before[name]


def status(jobs: Jobs) -> Object:
    found: Object = jobs.get("x")["status"]
    return found


def active(jobs: Jobs) -> list[int]:
    return [role.get("active", 0) for role in status(jobs).get("replicaStatuses", {}).values()]


def services(jobs: Jobs) -> list[str]:
    return [name.removeprefix("service/") for name in jobs.kubectl("get", "services", "-o", "name").split()]


def env(pod: Object, name: str) -> str:
    """What the process in the container sees: of two entries the later one."""
    return str({variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}[name])


async def taken_over(jobs: Jobs) -> None:
    """This operator has looked at the job and said so."""
    generation = jobs.get("x")["metadata"]["generation"]
    await becomes(lambda: status(jobs).get("observedGeneration") == generation)


def suspend(jobs: Jobs, suspended: bool) -> None:
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": suspended}}})
