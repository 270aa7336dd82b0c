"""Quantities as exact numbers, and back."""

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_operator.plan.quantity import parse, render, total


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
    assert [render(Decimal(text)) for text in ("2", "0.5", "0.0001", "4294967296")] == ["2", "500m", "1m", "4294967296"]


def test_a_total_adds_each_list_as_often_as_it_is_there() -> None:
    parts = [(2, {"cpu": "500m", "memory": "1Gi"}), (1, {"cpu": 3, "nvidia.com/gpu": "1"}), (4, {"cpu": "much"})]
    assert total(parts) == {"cpu": 4, "memory": 2 * 1024**3, "nvidia.com/gpu": 1}


NUMBERS = st.from_regex(r"(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?", fullmatch=True)
SUFFIXES = st.sampled_from(["", "n", "u", "m", "k", "M", "E", "Ki", "Ei", "e99", "e-99", "E+9"])
QUANTITIES = st.builds(lambda number, suffix: f"{number}{suffix}", NUMBERS, SUFFIXES)


@given(st.lists(st.tuples(st.integers(0, 10_000), QUANTITIES), max_size=6))
def test_a_total_is_exact_whatever_its_size(parts: list[tuple[int, str]]) -> None:
    found = total((times, {"cpu": text}) for times, text in parts).get("cpu", Decimal(0))
    assert Fraction(found) == sum((times * Fraction(str(parse(text))) for times, text in parts), Fraction(0))


@given(QUANTITIES)
def test_what_is_written_can_be_read_and_is_not_less(text: str) -> None:
    number = parse(text)
    assert number is not None
    written = render(number)
    assert re.fullmatch("[0-9]+m?", written)
    assert 0 <= Fraction(written.removesuffix("m")) / (1000 if written.endswith("m") else 1) - Fraction(number) < 1
