"""The gate of writes: bounded, and in turns by namespace and then by job."""

import asyncio
from collections.abc import Sequence

import pytest

from pytorchjob_operator.control.gate import FairGate
from tests.waiting import until_async

Wish = tuple[str, str]


class Door:
    """Lets wishes through one at a time, and records their order."""

    def __init__(self, limit: int = 1) -> None:
        self.gate = FairGate(limit)
        self.order: list[Wish] = []
        self.inside = 0
        self.most = 0

    async def go(self, wish: Wish) -> None:
        async with self.gate.slot(*wish):
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(wish)
            await asyncio.sleep(0)
            self.inside -= 1


def _wishes(text: str) -> list[Wish]:
    return [(word[0], word) for word in text.split()]


@pytest.mark.parametrize(
    ("waiting", "order"),
    [
        pytest.param("a1 a1 a1", "a1 a1 a1", id="one job in its order"),
        pytest.param("a1 a1 a1 b1", "a1 b1 a1 a1", id="another namespace is next"),
        pytest.param("a1 a1 a1 a2", "a1 a2 a1 a1", id="another job of the namespace is next"),
        pytest.param("a1 a1 a2 a2 b1 b1", "a1 b1 a2 b1 a1 a2", id="a namespace with two jobs gets no more than one"),
    ],
)
async def test_turns(waiting: str, order: str) -> None:
    door = Door()
    async with door.gate.slot("z", "z0"):
        tasks = [asyncio.create_task(door.go(wish)) for wish in _wishes(waiting)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert door.order == _wishes(order)


async def test_no_more_than_the_limit_are_inside() -> None:
    door = Door(limit=3)
    await asyncio.gather(*(door.go(("a", f"a{index % 7}")) for index in range(50)))
    assert (door.most, len(door.order)) == (3, 50)


@pytest.mark.parametrize("cancelled", [[0], [1], [0, 1, 2], [4]])
async def test_who_gives_up_waiting_costs_no_slot(cancelled: Sequence[int]) -> None:
    door = Door()
    async with door.gate.slot("z", "z0"):
        tasks = [asyncio.create_task(door.go(("a", f"a{index}"))) for index in range(5)]
        await asyncio.sleep(0)
        for index in cancelled:
            tasks[index].cancel()
    for index in cancelled:
        tasks[index].cancel()  # also one that has just been let in
    await asyncio.gather(*tasks, return_exceptions=True)
    await until_async(lambda: not door.gate._waiting)
    await door.go(("b", "b1"))
    assert door.order[-1] == ("b", "b1")
