"""The store: whatever the order, the newest state wins and the dead stay dead."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchjob_operator.kube.store import Store, Tombstones
from tests.fakes.values import Item

Step = tuple[str, Item]


def new_store(clock: list[float] | None = None) -> Store[Item]:
    now = clock or [0.0]
    return Store(lambda: now[0], tombstone_seconds=10.0)


def item(version: int, uid: str = "u1", name: str = "a", owner: str | None = "job") -> Item:
    return Item(name, uid, version, owner)


def feed(store: Store[Item], steps: Sequence[Step]) -> None:
    for what, value in steps:
        store.put(value) if what == "put" else store.remove(value)


@pytest.mark.parametrize(
    ("steps", "version"),
    [
        pytest.param([("put", item(5))], 5, id="a new object is known"),
        pytest.param([("put", item(5)), ("put", item(7))], 7, id="newer wins"),
        pytest.param([("put", item(7)), ("put", item(5))], 7, id="older is ignored"),
        pytest.param([("put", item(9)), ("put", item(10))], 10, id="versions are numbers, not text"),
        pytest.param([("put", item(5)), ("del", item(6))], None, id="a deleted object is gone"),
        pytest.param([("del", item(6)), ("put", item(5))], None, id="a late event raises no dead"),
        pytest.param([("put", item(5)), ("del", item(6)), ("put", item(5))], None, id="nor does a duplicate"),
        pytest.param([("del", item(6)), ("put", item(8))], 8, id="relabelled back into sight: alive again"),
        pytest.param([("put", item(8)), ("del", item(6))], 8, id="a late end of an earlier sight does not hurt"),
        pytest.param([("put", item(5)), ("put", item(9, "u2"))], 9, id="a successor takes the name"),
        pytest.param([("put", item(9, "u2")), ("put", item(5))], 9, id="its predecessor comes too late"),
        pytest.param([("put", item(9, "u2")), ("del", item(6))], 9, id="so does the predecessor's end"),
    ],
)
def test_what_is_known(steps: list[Step], version: int | None) -> None:
    store = new_store()
    feed(store, steps)
    known = store.get("default", "a")
    assert (known.resource_version if known else None) == version


def test_a_reply_that_the_object_is_gone_outweighs_every_event() -> None:
    store = new_store()
    store.put(item(5))
    assert store.gone("default", "a", "u1")
    assert not store.put(item(99))
    assert len(store) == 0


def test_gone_of_another_uid_leaves_the_successor() -> None:
    store = new_store()
    store.put(item(5, "u2"))
    assert not store.gone("default", "a", "u1")
    assert len(store) == 1


@pytest.mark.parametrize(
    ("seen", "at", "left"),
    [
        pytest.param({"u1"}, 10, ["a"], id="what the list shows stays"),
        pytest.param(set(), 10, [], id="what it does not show is gone"),
        pytest.param(set(), 4, ["a"], id="what is newer than the list stays: our own write came between"),
    ],
)
def test_a_list_sweeps(seen: set[str], at: int, left: list[str]) -> None:
    store = new_store()
    store.put(item(5))
    store.sweep(seen, at)
    assert [item.name for item in store.by_owner("job")] == left


def test_a_list_of_one_namespace_sweeps_only_there() -> None:
    store = new_store()
    store.put(item(5))
    store.put(Item("b", "u2", 6, namespace="elsewhere"))
    assert store.sweep(set(), 10, "elsewhere") == 1
    assert [item.name for item in store.by_owner("job")] == ["a"]


def test_what_was_swept_does_not_come_back_late() -> None:
    store = new_store()
    store.put(item(5))
    store.sweep(set(), 10)
    assert not store.put(item(7))
    assert store.put(item(12))


def test_by_owner_follows_a_change_of_owner() -> None:
    changed: list[str] = []
    store: Store[Item] = Store(lambda: 0.0, changed.append)
    store.put(item(5, owner="x"))
    store.put(item(6, owner="y"))
    store.put(item(7, owner=None))
    assert (store.by_owner("x"), store.by_owner("y")) == ((), ())
    assert (changed[0], set(changed[1:3]), changed[3:]) == ("x", {"x", "y"}, ["y"])


def test_nothing_is_told_when_nothing_shows_more() -> None:
    changed: list[str] = []
    store: Store[Item] = Store(lambda: 0.0, changed.append)
    feed(store, [("put", item(5)), ("put", item(5)), ("del", item(6)), ("del", item(6)), ("put", item(5))])
    assert changed == ["job", "job"]


def test_a_reset_forgets_versions_and_tells_the_owners() -> None:
    changed: list[str] = []
    store: Store[Item] = Store(lambda: 0.0, changed.append)
    feed(store, [("put", item(5)), ("del", item(6, "u2", "b"))])
    store.reset(1)
    assert store.put(item(2))
    assert changed == ["job", "job", "job"]


def test_a_list_replaces_a_state_that_it_would_have_to_contain() -> None:
    """After a restore of etcd a listed object is older than the cached one, although the list is newer."""
    store = new_store()
    store.put(item(50))
    assert not store.put(item(20), listed_at=49)
    assert store.put(item(20), listed_at=60)
    known = store.get("default", "a")
    assert (known and known.resource_version) == 20


def test_a_name_that_becomes_free_is_told_with_its_object() -> None:
    gone: list[str] = []
    store: Store[Item] = Store(lambda: 0.0, on_gone=lambda item: gone.append(item.uid))
    store.put(item(5))
    store.put(item(9, "u2"))
    assert gone == []
    store.remove(item(10, "u2"))
    assert gone == ["u2"]


def test_tombstones_expire_and_are_bounded() -> None:
    now = [0.0]
    dead = Tombstones(lambda: now[0], seconds=10.0, most=3)
    for index in range(5):
        dead.add(f"u{index}", 7)
    assert (len(dead), dead.version("u0"), dead.version("u4")) == (3, -1, 7)
    now[0] = 11.0
    dead.add("late", 1)
    assert (len(dead), dead.version("u4")) == (1, -1)


@st.composite
def _histories(draw: st.DrawFn) -> list[Step]:
    """A possible past: few names, each a chain of lives of new uids, one version per write for all of them."""
    steps: list[Step] = []
    alive: dict[str, str] = {}
    for version in range(1, draw(st.integers(1, 25))):
        name, dies = draw(st.sampled_from("ab")), draw(st.booleans())
        owner = draw(st.sampled_from(["x", "y", None]))
        uid = alive.setdefault(name, f"u{version}")
        steps.append(("del" if dies else "put", item(version, uid, name, owner)))
        if dies:
            del alive[name]
    return steps


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_order_with_any_doubles_ends_in_the_newest_state(data: st.DataObject) -> None:
    history = data.draw(_histories())
    doubles = data.draw(st.lists(st.sampled_from(history), max_size=10)) if history else []
    store = new_store()
    feed(store, data.draw(st.permutations(history + doubles)))
    last = {value.name: (what, value) for what, value in history}
    expected = {value for what, value in last.values() if what == "put"}
    assert {item for item in (store.get("default", "a"), store.get("default", "b")) if item} == expected
    for owner in "xy":
        assert set(store.by_owner(owner)) == {item for item in expected if item.owner_uid == owner}
        assert store.count(owner) == len(store.by_owner(owner))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_dead_object_is_never_seen_again_on_the_way(data: st.DataObject) -> None:
    history = data.draw(_histories())
    store, dead = new_store(), set()
    for what, value in data.draw(st.permutations(history * 2)):
        feed(store, [(what, value)])
        dead |= {value.uid} if what == "del" else set()
        assert not dead & {item.uid for owner in "xy" for item in store.by_owner(owner)}
