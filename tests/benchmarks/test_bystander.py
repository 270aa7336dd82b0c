"""The figures of tests/attacks: each round trip counts where it ends, and one that fails fails the test."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.bystander import FIGURES, SAMPLES, watching, watching_beside
from tests.waiting import until_async


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    FIGURES.clear()
    yield
    FIGURES.clear()


async def _at_once() -> float:
    return 0.001


async def _never() -> float:
    raise OSError("hung up")


async def _pause() -> None:
    await asyncio.sleep(0.001)


async def test_an_attack_is_repeated_until_the_bystander_is_measured() -> None:
    async with watching("it", _at_once, pause=0.001) as found:
        assert len(found.undisturbed) >= SAMPLES
        await found.during(_pause)
    assert [found] == FIGURES
    assert len(found.attacked) >= SAMPLES


async def test_the_round_trip_that_an_attack_holds_up_counts() -> None:
    gate, asked = asyncio.Event(), list[bool]()
    gate.set()

    async def held_up() -> float:
        asked.append(gate.is_set())
        await gate.wait()
        return 0.001 if asked[-1] else 7.0

    async with watching("it", held_up, pause=0.001) as found:
        gate.clear()
        await until_async(lambda: not asked[-1])
        asyncio.get_running_loop().call_later(0.05, gate.set)
    assert max(found.attacked) == 7000.0


async def test_an_attack_that_breaks_the_bystander_fails_the_test() -> None:
    with pytest.raises(OSError, match="hung up"):
        async with watching("it", _never) as found:
            await found.during(_pause)
    assert FIGURES == []


@pytest.mark.parametrize(
    ("round_trip", "error"),
    [
        pytest.param(lambda: 0.001, None, id="it answers"),
        pytest.param(lambda: 1 / 0, ZeroDivisionError, id="it breaks"),
    ],
)
def test_a_round_trip_that_blocks_is_measured_in_a_thread(
    round_trip: Callable[[], float], error: type[Exception] | None
) -> None:
    try:
        with watching_beside("it", round_trip, pause=0.001) as found:
            found.while_repeated(lambda: None)
        assert len(found.attacked) >= SAMPLES
    except ZeroDivisionError:
        assert error is ZeroDivisionError
    assert len(FIGURES) == (0 if error else 1)
