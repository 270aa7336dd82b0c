"""Whole stories: all messages, events and reasons. `stories` writes the transcripts, a person reads the diff."""

from collections.abc import Callable

import pytest

from tests.rounds.stories import STORIES, TRANSCRIPTS, transcript
from tests.rounds.transcript import Recorded


@pytest.mark.parametrize("story", [pytest.param(story, id=story.__name__.replace("_", " ")) for story in STORIES])
def test_the_transcript_is_the_one_that_was_read(story: Callable[[], Recorded]) -> None:
    assert story().lines == transcript(story).read_text().splitlines()


def test_no_transcript_is_left_over() -> None:
    assert {transcript(story) for story in STORIES} == set(TRANSCRIPTS.iterdir())
