"""Exit codes, and the termination message: what the agent writes, the operator reads back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.termination import TerminationMessage, exit_code_of


@pytest.mark.parametrize(
    ("returncode", "code"),
    [pytest.param(0, 0, id="success"), pytest.param(17, 17, id="its own"), pytest.param(-9, 137, id="a signal")],
)
def test_exit_codes(returncode: int, code: int) -> None:
    assert exit_code_of(returncode) == code


MESSAGES = st.builds(
    TerminationMessage,
    reason=st.text(max_size=100),
    exit_code=st.integers(0, 255),
    rank=st.none() | st.integers(0, 10**6),
    local_rank=st.none() | st.integers(0, 64),
    message=st.text(max_size=200),
    traceback=st.text(max_size=200),
    failed_after=st.lists(st.integers(0, 10**6), max_size=10).map(tuple),
)


@settings(deadline=None)
@given(MESSAGES)
def test_a_short_message_is_read_back(message: TerminationMessage) -> None:
    assert TerminationMessage.from_json(message.to_json()) == message


@settings(deadline=None, max_examples=50)
@given(MESSAGES, st.integers(1, 2000))
def test_a_long_message_fits_and_stays_json(message: TerminationMessage, times: int) -> None:
    long = replace(
        message,
        reason=message.reason * times,
        message=message.message * times,
        traceback=message.traceback * times,
        failed_after=message.failed_after * times,
    )
    text = long.to_json()
    assert len(text.encode()) <= 4096
    assert TerminationMessage.from_json(text).exit_code == message.exit_code


def test_a_long_traceback_keeps_its_end() -> None:
    text = TerminationMessage("WorkerFailed", 1, traceback="frame\n" * 5000 + "ValueError: x").to_json()
    assert TerminationMessage.from_json(text).traceback.endswith("ValueError: x")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Traceback ...", id="a log line"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="no version"),
        pytest.param(json.dumps({"version": 1, "reason": 3}), id="a reason that is a number"),
        pytest.param(json.dumps({"version": 1, "exit_code": "x"}), id="a code that is a word"),
        pytest.param(json.dumps({"version": 1, "failed_after": ["x"]}), id="ranks that are words"),
    ],
)
def test_what_is_no_termination_message_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="termination message"):
        TerminationMessage.from_json(text)
