"""Quantities as exact numbers, and back."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_operator.plan.quantity import parse, render


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("2", "2", id="a plain number"),
        pytest.param(3, "3", id="an integer of YAML"),
        pytest.param("500m", "0.5", id="thousandths"),
        pytest.param("1.5", "1.5", id="a fraction"),
        pytest.param(".5", "0.5", id="a fraction without a leading digit"),
        pytest.param("4Gi", "4294967296", id="a binary suffix"),
        pytest.param("1G", "1000000000", id="a decimal suffix"),
        pytest.param("2e3", "2000", id="an exponent"),
        pytest.param("1E", "1000000000000000000", id="E alone is exa"),
        pytest.param("-1", "-1", id="below zero"),
        pytest.param("0", "0", id="nothing"),
    ],
)
def test_a_quantity_is_read(text: object, number: str) -> None:
    assert parse(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "1ki", "--1", ".", None, True, 1.5, "1e999", "9" * 50, "²"])
def test_what_is_no_quantity_says_nothing(text: object) -> None:
    assert parse(text) is None


@given(st.integers(0, 10**18))
def test_what_is_written_is_read_back(milli: int) -> None:
    assert parse(render(Decimal(milli) / 1000)) == Decimal(milli) / 1000


def test_a_number_is_written_shortest() -> None:
    assert [render(Decimal(one)) for one in ("2", "0.5", "0.0001", "4294967296")] == ["2", "500m", "1m", "4294967296"]
