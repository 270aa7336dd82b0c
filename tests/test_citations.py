"""A page's names of tests are compared with the files."""

import pytest

from tests.citations import ROOT, cited, collected
from tests.prose import pages

HERE = "tests/test_citations.py"


@pytest.mark.parametrize(
    ("name", "there"),
    [
        pytest.param(f"{HERE}::test_names_are_found", True, id="a test"),
        pytest.param(f"{HERE}::test_names_are_found[a test]", True, id="a test with its parameter"),
        pytest.param(f"{HERE}::test_names_are_found[another]", False, id="a parameter that it does not have"),
        pytest.param(f"{HERE}::test_nothing", False, id="no such test"),
        pytest.param(f"{HERE}::cited", False, id="what is not a test"),
        pytest.param("tests/test_nowhere.py::test_x", False, id="no such file"),
        pytest.param("tests/apiserver/test_crd.py::test_the_api_server_refuses[min above max]", True, id="elsewhere"),
        pytest.param("tests/plan/test_ending.py::test_ttl[completed-over, to the second]", True, id="of two tables"),
    ],
)
def test_names_are_found(name: str, there: bool) -> None:
    assert (name in collected([name])) is there


def test_names_are_read_from_a_text() -> None:
    assert cited("See `tests/a/test_b.py::test_c[d e]` and `e2e/test_f.py::test_g`, not `tests/a`.") == [
        "tests/a/test_b.py::test_c[d e]",
        "e2e/test_f.py::test_g",
    ]


@pytest.mark.parametrize("name", [str(path.relative_to(ROOT)) for path in pages()])
def test_every_test_that_a_page_names_exists(name: str) -> None:
    named = cited((ROOT / name).read_text())
    assert sorted({*named} - collected(named)) == []
