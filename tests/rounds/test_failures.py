"""What is stored of a failure: all of the first ones, less of later ones, nothing of very many."""

import pytest

from pytorchjob_agent.contract.fields import cut
from pytorchjob_agent.contract.messages import Failed, RoundId
from pytorchjob_operator.rounds.failures import MOST_FAILURES, SHORT_MESSAGE, WHOLE_FAILURES, stored_failure
from pytorchjob_operator.rounds.values import Failure

LONG = "x" * 1000
MESSAGE = Failed(RoundId(1, 1), 5, 2, 9, LONG, "File a", age=2.5, also=(6, 7), hang=True, waits=True)


@pytest.mark.parametrize("earlier", [0, WHOLE_FAILURES - 1])
def test_the_first_failures_are_stored_as_they_are(earlier: int) -> None:
    assert stored_failure(MESSAGE, 3, 100.0, earlier) == Failure(3, 5, 9, LONG, "File a", 97.5, (6, 7), True, True)


@pytest.mark.parametrize("earlier", [WHOLE_FAILURES, MOST_FAILURES - 1])
def test_of_later_ones_the_beginning_of_the_message_is_stored(earlier: int) -> None:
    stored = stored_failure(MESSAGE, 3, 100.0, earlier)
    assert stored is not None
    assert stored.message == cut(LONG, SHORT_MESSAGE)
    assert (stored.traceback, stored.also, stored.hang, stored.waits) == ("", (), True, True)


def test_nothing_is_stored_of_very_many() -> None:
    assert stored_failure(MESSAGE, 3, 100.0, MOST_FAILURES) is None


@pytest.mark.parametrize(("age", "at"), [(0.0, 100.0), (60.0, 40.0), (61.0, 40.0), (-1.0, 100.0)])
def test_the_age_of_a_failure_is_believed_up_to_a_minute(age: float, at: float) -> None:
    stored = stored_failure(Failed(RoundId(1, 1), 5, 2, 9, "", age=age), 3, 100.0, 0)
    assert stored is not None
    assert stored.at == at
