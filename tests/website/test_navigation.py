"""The site shows every page of docs/ once, and the home page is docs/README.md."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from website.links import OTHERS, in_repository, on_site
from website.navigation import sources

ROOT = Path(__file__).parents[2]


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without mkdocs: its own tags become nothing."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def config() -> dict[str, Any]:
    return dict(yaml.load((ROOT / "website/mkdocs.yml").read_text(), Loader=_Loader))


NAMES = list(sources(config()["nav"]))


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    pages = [on_site(str(page.relative_to(ROOT))) for page in sorted((ROOT / "docs").rglob("*.md"))]
    assert sorted(name for name in NAMES if not name.startswith(f"{OTHERS}/")) == sorted(pages)
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_the_navigation_exists(name: str) -> None:
    assert (ROOT / in_repository(name)).is_file()


def test_the_parts_come_in_reading_order() -> None:
    assert [title for entry in config()["nav"] for title in entry] == [
        "Home",
        "Tutorial",
        "How to",
        "Reference",
        "Explanation",
    ]
    assert NAMES[0] == "README.md"


def test_the_build_is_strict_about_everything_that_mkdocs_checks() -> None:
    found = config()
    assert found["strict"] is True
    assert found["validation"] == dict.fromkeys(
        ["omitted_files", "not_found", "absolute_links", "unrecognized_links", "anchors"], "warn"
    )


def test_no_font_comes_from_another_host() -> None:
    assert config()["theme"]["font"] is False


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
