"""The cache of jobs: the newest version wins, and each change is reported once."""

from collections.abc import Callable
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


def test_what_arrives_after_the_deletion_does_not_bring_it_back() -> None:
    """The response to a write can arrive after the event of the deletion."""
    ear = Ear()
    uid = ear.jobs.put(version(1))
    ear.jobs.forget(uid)
    ear.jobs.put(version(2))
    assert (ear.jobs.get(uid), ear.jobs.named("ns", "x")) == (None, None)
    assert ear.heard == [(None, "1"), ("1", None)]


def test_a_job_that_was_never_seen_has_no_end() -> None:
    ear = Ear()
    ear.jobs.forget("uid-of-no-job")
    assert ear.heard == []


def listed(ear: Ear, *jobs: dict[str, Any], at: int, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
    """The uids that a list of this version changes; something may happen while it is on its way."""
    relist = ear.jobs.relist()
    meanwhile()
    relist.page(jobs, str(at))
    return relist.finish()


def known(ear: Ear) -> list[str]:
    return sorted(job.metadata.resource_version for job in ear.jobs)


def test_a_list_removes_what_it_lacks_and_keeps_what_it_shows() -> None:
    ear = Ear()
    ear.jobs.put(version(1))
    other = make_job(name="y", meta={"uid": "uid-y", "resourceVersion": "2"}).to_api()
    ear.jobs.put(other)
    assert (listed(ear, other, at=3), known(ear)) == ([version(1)["metadata"]["uid"]], ["2"])


def test_a_list_is_no_match_for_what_happened_since_it_was_requested() -> None:
    ear = Ear()
    uid = ear.jobs.put(version(1))
    assert (listed(ear, version(1), at=5, meanwhile=lambda: ear.jobs.put(version(6))), known(ear)) == ([], ["6"])
    assert (listed(ear, version(6), at=7, meanwhile=lambda: ear.jobs.forget(uid)), known(ear)) == ([], [])


def test_a_list_older_than_the_cache_shows_a_restored_etcd_and_replaces_everything() -> None:
    ear = Ear()
    uid = ear.jobs.put(version(90))
    assert (listed(ear, version(20), at=50), known(ear)) == ([uid], ["20"])
    ear.jobs.put(version(51))
    assert known(ear) == ["51"]


def test_a_list_that_contradicts_the_cache_replaces_it() -> None:
    """etcd was restored, and its versions have overtaken those of the lost time."""
    ear = Ear()
    uid = ear.jobs.put(version(90))
    assert (listed(ear, version(20), at=100), known(ear)) == ([uid], ["20"])


def test_a_deleted_job_that_a_later_list_shows_exists_again() -> None:
    ear = Ear()
    uid = ear.jobs.put(version(90))
    ear.jobs.forget(uid)
    assert (listed(ear, version(20), at=100), known(ear)) == ([uid], ["20"])


def test_a_name_leads_to_the_present_job() -> None:
    ear = Ear()
    old = ear.jobs.put(version(1))
    new = ear.jobs.put(make_job(meta={"uid": "uid-new", "resourceVersion": "2"}).to_api())
    ear.jobs.forget(old)
    assert ear.jobs.named("ns", "x") == new
