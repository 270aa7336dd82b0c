"""The store at the versions and moments at which its answer changes, and with several namespaces."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.kube.store import Store, Tombstones
from tests.fakes.values import Item

ITEM = Item("a", "u1", 5)
OTHER = Item("b", "u2", 6, namespace="other")


def new_store(now: list[float] | None = None) -> Store[Item]:
    clock = now or [0.0]
    return Store(lambda: clock[0], tombstone_seconds=10.0)


def test_the_end_of_an_object_is_reported_once() -> None:
    store = new_store()
    store.put(ITEM)
    assert [store.remove(replace(ITEM, resource_version=6)) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("version", "left"), [pytest.param(4, 1, id="an older list"), pytest.param(5, 0, id="a list of its own version")]
)
def test_what_a_list_lacks_is_gone_if_it_is_not_newer(version: int, left: int) -> None:
    store = new_store()
    store.put(ITEM)
    assert store.sweep(set(), version) == 1 - left
    assert len(store) == left


def test_a_restore_of_one_namespace_leaves_the_others() -> None:
    store = new_store()
    store.put(ITEM)
    store.put(OTHER)
    store.reset(3, "other")
    assert (store.get("default", "a"), store.get("other", "b")) == (ITEM, None)


@pytest.mark.parametrize(
    ("seconds", "version"),
    [pytest.param(9.9, 7, id="remembered"), pytest.param(10.0, -1, id="forgotten after just its time")],
)
def test_a_deletion_is_remembered_for_its_time(seconds: float, version: int) -> None:
    now = [100.0]
    dead = Tombstones(lambda: now[0], 10.0)
    dead.add("u1", 7)
    now[0] += seconds
    assert dead.version("u1") == version


def test_an_object_without_an_owner_can_go() -> None:
    store = new_store()
    store.put(replace(ITEM, owner_uid=None))
    assert store.remove(replace(ITEM, owner_uid=None))
    assert len(store) == 0


class Watched(Item):
    """An object that has another thread read the store whenever the store reads its owner."""

    read: Callable[[], None]

    def __getattribute__(self, name: str) -> Any:
        if name == "owner_uid":
            Watched.read()
        return super().__getattribute__(name)


def test_a_thread_that_reads_while_an_object_changes_finds_it() -> None:
    store, found = new_store(), set[tuple[bool, int]]()
    Watched.read = lambda: None
    store.put(Watched("a", "u1", 5))
    Watched.read = lambda: found.add((store.get("default", "a") is not None, len(store.by_owner("job"))))
    store.put(Watched("a", "u1", 6))
    assert found == {(True, 1)}


def test_an_object_that_changes_its_owner_leaves_the_former_one() -> None:
    store = new_store()
    store.put(ITEM)
    store.put(replace(ITEM, resource_version=6, owner_uid="another job"))
    assert (store.count("job"), store.count("another job")) == (0, 1)


def test_the_newest_version_is_that_of_all_objects_so_far() -> None:
    store = new_store()
    assert store.newest == 0
    store.put(OTHER)
    store.put(ITEM)
    store.remove(OTHER)
    assert store.newest == 6


@pytest.mark.parametrize(
    ("known", "item", "listed_at", "taken"),
    [
        pytest.param(7, 5, 7, True, id="a list of the known version has to contain it"),
        pytest.param(7, 5, 6, False, id="an older list need not"),
        pytest.param(7, 7, 9, False, id="the same version is nothing new"),
        pytest.param(1, 0, None, False, id="an event is not a list"),
    ],
)
def test_which_older_states_are_taken(known: int, item: int, listed_at: int | None, taken: bool) -> None:
    store = new_store()
    store.put(replace(ITEM, resource_version=known))
    older = replace(ITEM, resource_version=item)
    assert (store.put(older) if listed_at is None else store.put(older, listed_at)) is taken


def test_a_state_of_the_version_of_the_deletion_is_outdated() -> None:
    store = new_store()
    store.remove(ITEM)
    assert not store.put(ITEM)
    assert store.put(replace(ITEM, resource_version=6))


def test_an_object_whose_name_a_successor_has_does_not_come_back() -> None:
    store = new_store()
    store.put(ITEM)
    store.put(replace(ITEM, uid="u2", resource_version=9))
    assert not store.put(replace(ITEM, resource_version=99))


def test_the_highest_version_of_a_deletion_counts() -> None:
    dead = Tombstones(lambda: 100.0, 10.0)
    for version in (5, 7, 6):
        dead.add("u1", version)
    assert dead.version("u1") == 7


@pytest.mark.parametrize(("now", "left"), [(109.9, 2), (110.0, 1)])
def test_a_deletion_is_forgotten_with_the_next_one_after_its_time(now: float, left: int) -> None:
    clock = [100.0]
    dead = Tombstones(lambda: clock[0], 10.0)
    dead.add("u1", 5)
    clock[0] = now
    dead.add("u2", 5)
    assert len(dead) == left
