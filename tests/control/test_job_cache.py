"""The cache of jobs: the newest version wins, and each change is reported once."""

from typing import Any

from pytorchjob_operator.control.job_cache import JobCache
from pytorchjob_operator.model import PyTorchJob
from tests.factories import make_job


class Ear:
    """Hears the changes, as resourceVersions."""

    def __init__(self) -> None:
        self.heard: list[tuple[str | None, str | None]] = []
        self.jobs = JobCache(self)

    def __call__(self, old: PyTorchJob | None, new: PyTorchJob | None) -> None:
        self.heard.append((old and old.metadata.resource_version, new and new.metadata.resource_version))


def version(number: int) -> dict[str, Any]:
    return make_job(meta={"resourceVersion": str(number)}).to_api()


def test_each_newer_version_is_told_with_the_one_before() -> None:
    ear = Ear()
    for number in (1, 3, 2, 3, 4):
        ear.jobs.put(version(number))
    assert ear.heard == [(None, "1"), ("1", "3"), ("3", "4")]


def test_an_end_is_told_once() -> None:
    ear = Ear()
    uid = ear.jobs.put(version(1))
    ear.jobs.forget(uid)
    ear.jobs.forget(uid)
    assert ear.heard == [(None, "1"), ("1", None)]


def test_a_late_event_does_not_make_it_end_again() -> None:
    ear = Ear()
    ear.jobs.forget(ear.jobs.put(version(1)))
    ear.jobs.forget(ear.jobs.put(version(2)))
    assert [change for change in ear.heard if change[1] is None] == [("1", None)]


def test_a_job_that_was_never_seen_has_no_end() -> None:
    ear = Ear()
    ear.jobs.forget("uid-of-no-job")
    assert ear.heard == []
