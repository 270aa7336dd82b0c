"""Every invalid job, a real API server and a running operator: refused with the field's name, or told in a condition.

`pytest -s` shows the counts.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pytorchjob_operator.control.apply import JOBS
from pytorchjob_operator.errors import ApiError
from pytorchjob_operator.kube.client import ApiClient, Scope
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Jobs, OperatorProcess
from tests.model import corpus
from tests.model.invalid import AS_V1, BROKEN_PODS, INVALID
from tests.waiting import until_async

pytestmark = [pytest.mark.apiserver]

DRY_RUN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PARALLEL = 16
REFUSED = (400, 422)
OUTCRIES = re.compile("Traceback|Task exception|never retrieved|never awaited")


@pytest.fixture
def told(operator: OperatorProcess) -> Iterator[Callable[[str], None]]:
    """Prints a line; at the end the operator must be ready and must not have cried out."""
    before = len(operator.log)
    yield print
    assert OUTCRIES.findall(operator.log[before:]) == []
    assert operator.http("/readyz")[0] == 200


class Submit:
    """A user who submits jobs of all kinds to one namespace, several at a time."""

    def __init__(self, client: ApiClient, plane: ControlPlane, namespace: str) -> None:
        self._client = client
        self._plane = plane
        self._namespace = namespace
        self._gate = asyncio.Semaphore(PARALLEL)

    async def __call__(self, job: corpus.Job, strict: bool = False) -> str:
        """The server's refusal; nothing if the job was taken."""
        body = corpus.changed(job, {"metadata.namespace": self._namespace})
        async with self._gate:
            if strict:  # as kubectl asks; our client sends what the operator has made, and does not
                code, message = await asyncio.to_thread(self._plane.post, DRY_RUN, job)
                return message if code in REFUSED else ""
            try:
                await self._client.create(JOBS, self._namespace, body)
            except ApiError as error:
                if error.status not in REFUSED:
                    raise
                return error.message
        return ""

    async def conditions(self) -> dict[str, set[str]]:
        """By job, the types of the conditions that hold."""
        pages = [page async for page in self._client.list(Scope(JOBS, self._namespace))]
        return {job["metadata"]["name"]: holding(job) for page in pages for job in page.items}


def holding(job: dict[str, Any]) -> set[str]:
    return {
        condition["type"] for condition in job.get("status", {}).get("conditions", ()) if condition["status"] == "True"
    }


@pytest.fixture
def submit(client: ApiClient, control_plane: ControlPlane, jobs: Jobs) -> Submit:
    return Submit(client, control_plane, jobs.namespace)


def plain(message: str) -> str:
    """CEL's errors write a key of a map in brackets, the schema's do not."""
    return re.sub(r"\[([A-Za-z]+)]", r".\1", message)


async def test_every_invalid_job_is_refused_with_its_field(submit: Submit, told: Callable[[str], None]) -> None:
    said = await asyncio.gather(*(submit(named(index, bad), bad.only_strict) for index, bad in enumerate(INVALID)))
    unhandled = [
        f"{bad.sentence}: {answer}" for bad, answer in zip(INVALID, said, strict=True) if bad.field not in plain(answer)
    ]
    told(f"\n{len(INVALID)} invalid jobs: {len(INVALID) - len(unhandled)} refused by name of the field,"
         f" {len(unhandled)} unhandled")  # fmt: skip
    assert unhandled == []


def named(index: int, bad: corpus.Bad) -> corpus.Job:
    """The job under a name of its own, unless its name is what is wrong."""
    return bad.job if bad.field == "metadata.name" else corpus.changed(bad.job, {"metadata.name": f"case-{index}"})


async def test_every_broken_pod_ends_in_a_condition(submit: Submit, told: Callable[[str], None]) -> None:
    jobs = {f"case-{index}": corpus.changed(corpus.job(), change) for index, change in enumerate(BROKEN_PODS.values())}
    found = await ends(submit, jobs, {"ReplicaFailure"})
    silent = [about for about, kinds in zip(BROKEN_PODS, found, strict=True) if "ReplicaFailure" not in kinds]
    told(f"\n{len(jobs)} jobs with a broken pod: {count(found)}, {len(silent)} unhandled")
    assert silent == []


async def test_what_v1_took_and_ran_is_taken(submit: Submit, told: Callable[[str], None]) -> None:
    found = await ends(submit, {f"case-{index}": job for index, job in enumerate(AS_V1.values())}, {"Created"})
    wrong = [about for about, kinds in zip(AS_V1, found, strict=True) if "ReplicaFailure" in kinds or not kinds]
    told(f"\n{len(AS_V1)} jobs as v1 took them: {count(found)}, {len(wrong)} unhandled")
    assert wrong == []


async def ends(submit: Submit, jobs: dict[str, corpus.Job], wanted: set[str]) -> list[set[str]]:
    """The conditions of the jobs, all of which are taken, once each has one that was wanted, or no longer waits."""
    said = await asyncio.gather(*(submit(corpus.changed(job, {"metadata.name": name})) for name, job in jobs.items()))
    assert not any(said), said

    async def told() -> bool:
        found = await submit.conditions()
        return all(found[name] & wanted for name in jobs)

    with suppress(AssertionError):
        await until_async(told)
    found = await submit.conditions()
    return [found[name] for name in jobs]


def count(found: list[set[str]]) -> str:
    """How many jobs have which condition."""
    kinds = Counter(kind for ended in found for kind in ended)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
