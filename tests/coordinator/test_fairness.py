"""Whose turn it is among namespaces, jobs and connections."""

import pytest

from pytorchjob_operator.coordinator.fairness import FairQueue

Path = tuple[str, ...]


def order(items: list[tuple[str, Path]]) -> list[str]:
    queue: FairQueue[str] = FairQueue()
    for item, path in items:
        queue.add(item, *path)
    taken = []
    while queue:
        taken.append(queue.take())
    return taken


@pytest.mark.parametrize(
    ("items", "taken"),
    [
        pytest.param([("1", ("a",)), ("2", ("a",)), ("3", ("a",))], "123", id="one job: in order"),
        pytest.param([("1", ("a",)), ("2", ("a",)), ("3", ("a",)), ("4", ("b",))], "1423", id="jobs take turns"),
        pytest.param(
            [("1", ("x", "a")), ("2", ("x", "b")), ("3", ("x", "c")), ("4", ("y", "d")), ("5", ("y", "d"))],
            "14253",
            id="namespaces take turns, however many jobs they have",
        ),
        pytest.param([("1", ()), ("2", ())], "12", id="without groups"),
    ],
)
def test_the_groups_take_turns(items: list[tuple[str, Path]], taken: str) -> None:
    assert "".join(order(items)) == taken


def test_an_empty_queue_has_no_item() -> None:
    with pytest.raises(IndexError):
        FairQueue[str]().take()
