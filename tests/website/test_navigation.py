"""The pages of the site's navigation."""

from typing import Any

import pytest

from website.navigation import sources


@pytest.mark.parametrize(
    ("navigation", "pages"),
    [
        pytest.param([], [], id="empty"),
        pytest.param(["a.md"], ["a.md"], id="a page without a title"),
        pytest.param([{"A": "a.md"}], ["a.md"], id="a page with a title"),
        pytest.param([{"Part": ["i.md", {"Below": ["b.md", {"C": "c.md"}]}]}, "d.md"], ["i.md", "b.md", "c.md", "d.md"],
                     id="parts within parts, in order"),
    ],
)  # fmt: skip
def test_the_pages_of_a_navigation(navigation: list[Any], pages: list[str]) -> None:
    assert list(sources(navigation)) == pages
