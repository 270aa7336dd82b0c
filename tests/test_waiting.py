"""Waiting ends with the first true answer, and in vain with a story."""

import asyncio
from collections.abc import Callable

import pytest

from tests.waiting import Story, again, again_async, becomes, connections_close, until, until_async


def answers() -> Callable[[], str]:
    left = iter(["", "", "there"])
    return lambda: next(left)


def test_the_first_true_answer_is_returned() -> None:
    assert until(answers(), every=0) == "there"


async def test_also_while_other_tasks_go_on() -> None:
    assert await until_async(answers(), every=0) == "there"
    assert await becomes(answers(), every=0) == "there"


async def test_a_question_may_be_a_coroutine() -> None:
    later = answers()

    async def holds() -> str:
        return later()

    assert await until_async(holds, every=0) == "there"


@pytest.mark.parametrize("story", ["no pod came", lambda: "no pod came"], ids=["a text", "a function"])
def test_a_wait_in_vain_is_explained(story: Story) -> None:
    with pytest.raises(AssertionError, match="did not come true within 0 s: no pod came"):
        until(lambda: False, 0, story)


def spoilt(tellings: int) -> Callable[[int], str]:
    """A story that fails in its first tellings."""

    def story(number: int) -> str:
        assert number >= tellings, f"telling {number} is spoilt"
        return f"telling {number}"

    return story


async def test_a_story_that_was_spoilt_is_told_again_until_the_last_time() -> None:
    async def later(number: int) -> str:
        return spoilt(2)(number)

    assert [again(spoilt(0)), again(spoilt(2)), await again_async(later)] == ["telling 0", "telling 2", "telling 2"]
    with pytest.raises(AssertionError, match="telling 2 is spoilt"):
        again(spoilt(3))
    with pytest.raises(AssertionError, match="telling 1 is spoilt"):
        await again_async(later, times=2)


async def test_the_end_of_a_connection_is_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    ends = asyncio.ensure_future(connections_close())
    await asyncio.sleep(0.05)
    assert not ends.done()
    writer.close()
    await ends
    server.close()
