"""What the agent shows of scripts that report nothing, from round to round."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.observers.round_observers import OBSERVERS
from pytorchjob_agent.rendezvous.extension import Extension, OwnPod
from pytorchjob_agent.script.status_request import SERVER_URL
from tests.agent.starting import starting


@pytest.fixture
def observers() -> Iterator[Extension]:
    made = OBSERVERS.create(OwnPod({}, "job", "127.0.0.1", 2))
    yield made
    made.close()


def begin(observers: Extension, directory: Path) -> list[dict[str, str]]:
    """Begin a round of two workers; returns their variables."""
    return [dict(each) for each in observers.variables(starting(directory, 2))]


def test_each_worker_has_an_address_of_its_own(observers: Extension, tmp_path: Path) -> None:
    assert not observers.reads_lines
    first, second = begin(observers, tmp_path)
    assert first[SERVER_URL] != second[SERVER_URL]
    assert observers.reads_lines


def test_what_a_script_prints_is_shown_unless_it_reports(observers: Extension, tmp_path: Path) -> None:
    begin(observers, tmp_path)
    observers.add_line(0, b"step 7/100 loss 0.5")
    assert observers.report(1.0, {})["shown_step"] == 7
    assert "shown_step" not in observers.report(1.0, {"step": 3})


def test_the_last_position_is_shown_until_the_next_round(observers: Extension, tmp_path: Path) -> None:
    begin(observers, tmp_path / "1")
    observers.add_line(0, b"step 7/100 loss 0.5")
    observers.over(clean=False)
    assert observers.report(1.0, {})["shown_step"] == 7
    begin(observers, tmp_path / "2")
    assert "shown_step" not in observers.report(2.0, {})


def test_without_a_round_nothing_is_shown(observers: Extension) -> None:
    observers.add_line(0, b"step 7/100 loss 0.5")
    assert observers.report(1.0, {}) == {}
