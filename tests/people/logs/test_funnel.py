"""Many threads put lines, a single thread takes them, and memory stays bounded."""

from threading import Thread

import pytest

from pytorchjob.logs.funnel import Funnel
from pytorchjob.logs.merge import Merger
from pytorchjob.logs.reader import SessionOver
from tests import waiting

LIMIT = 4000
SOURCES, LINES = 64, 200


def start(funnel: Funnel[tuple[int, int]], put: list[int]) -> list[Thread]:
    def run(source: int) -> None:
        try:
            for number in range(LINES):
                funnel.put(source, number, (source, number), 0)
                put[source] += 1
        except SessionOver:
            return
        funnel.close(source)

    for source in range(SOURCES):
        funnel.add(source)
    threads = [Thread(target=run, args=(source,), daemon=True) for source in range(SOURCES)]
    for thread in threads:
        thread.start()
    return threads


def test_sources_wait_for_a_slow_taker_and_no_line_is_lost() -> None:
    funnel, put = Funnel(Merger[tuple[int, int]](float("inf"), LIMIT)), [0] * SOURCES
    start(funnel, put)
    waiting.until(lambda: all(put), story="every source puts something")
    most, taken = 0, list[tuple[int, int]]()
    while not funnel.is_over:
        taken += funnel.take(1)
        most = max(most, sum(put) - len(taken))
    assert most <= SOURCES * (LIMIT // 300 + 1)
    assert taken == [(source, number) for number in range(LINES) for source in range(SOURCES)]


def test_stopping_ends_all_threads_and_keeps_what_they_have_put() -> None:
    funnel, put = Funnel(Merger[tuple[int, int]](float("inf"), LIMIT)), [0] * SOURCES
    threads = start(funnel, put)
    waiting.until(lambda: all(put), story="every source puts something")
    rest = funnel.take_rest()
    for thread in threads:
        thread.join(waiting.SECONDS)
    assert len(rest) == sum(put)


def test_a_stopped_funnel_refuses() -> None:
    funnel = Funnel(Merger[str](0, LIMIT))
    funnel.check()
    funnel.stop()
    with pytest.raises(SessionOver):
        funnel.check()
