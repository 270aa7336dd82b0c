"""Tokens: one for each pod of each job; the coordinator accepts no other."""

import hashlib
import hmac

import pytest

from pytorchjob_operator.tokens import KEY_BYTES, matches, token

KEY = bytes(range(KEY_BYTES))
OTHER_KEY = bytes(KEY_BYTES)


def test_a_token_is_the_hmac_of_job_and_pod() -> None:
    expected = hmac.new(KEY, b"job-1/train-worker-0", hashlib.sha256).hexdigest()
    assert token(KEY, "job-1", "train-worker-0") == expected
    assert len(expected) == 64


def test_a_new_process_with_the_same_key_makes_the_same_token() -> None:
    assert token(KEY, "job-1", "a") == token(bytes(KEY), "job-1", "a")


GIVEN = [
    pytest.param(token(KEY, "job-1", "a"), True, id="its own"),
    pytest.param(token(KEY, "job-1", "b"), False, id="of another pod of the job"),
    pytest.param(token(KEY, "job-2", "a"), False, id="of a pod of the same name in another job"),
    pytest.param(token(OTHER_KEY, "job-1", "a"), False, id="made with another key"),
    pytest.param(token(KEY, "job-1", "a").upper(), False, id="in capitals"),
    pytest.param(token(KEY, "job-1", "a")[:-1], False, id="cut"),
    pytest.param(token(KEY, "job-1", "a") + "0", False, id="with more behind it"),
    pytest.param("", False, id="none"),
    pytest.param("ä" * 64, False, id="in another script"),
    pytest.param("\ud800", False, id="no text at all"),
]


@pytest.mark.parametrize(("given", "right"), GIVEN)
def test_a_token(given: str, right: bool) -> None:
    assert matches(KEY, "job-1", "a", given) is right


def test_names_that_are_no_text_are_refused_and_break_nothing() -> None:
    assert not matches(KEY, "\ud800", "\udfff", token(KEY, "job-1", "a"))
