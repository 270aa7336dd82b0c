"""Links of a page lead to the same place on the site as in the repository."""

from pathlib import Path

import pytest

from website.links import Repository, for_python_markdown, images, in_repository, on_site, relinked

SOURCES = {"README.md", "elastic.md", "runbooks/README.md", "project/README.md", "project/benchmarks/README.md",
           "project/benchmarks/faults.svg"}  # fmt: skip
ADDRESS = "https://git.example.com/team/project"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "examples/presets").mkdir(parents=True)
    (tmp_path / "examples/train.py").touch()
    (tmp_path / "crd.yaml").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "source"),
    [
        pytest.param("docs/README.md", "README.md", id="the home page"),
        pytest.param("docs/runbooks/README.md", "runbooks/README.md", id="below docs"),
        pytest.param("README.md", "project/README.md", id="the page of the repository"),
        pytest.param("benchmarks/README.md", "project/benchmarks/README.md", id="elsewhere"),
    ],
)
def test_a_page_has_one_place_on_the_site(path: str, source: str) -> None:
    assert (on_site(path), in_repository(source)) == (source, path)


@pytest.mark.parametrize(
    ("page", "written", "on_the_site"),
    [
        pytest.param("docs/README.md", "[a](elastic.md#b)", "[a](elastic.md#b)", id="between pages of docs"),
        pytest.param("docs/README.md", "[a](../README.md#b)", "[a](project/README.md#b)", id="out of docs"),
        pytest.param("docs/runbooks/X.md", "[a](../../README.md)", "[a](../project/README.md)", id="out of a folder"),
        pytest.param("README.md", "[a](docs/elastic.md)", "[a](../elastic.md)", id="into docs"),
        pytest.param("README.md", "[a](docs/README.md)", "[a](../README.md)", id="to the home page"),
        pytest.param("README.md", "![a](benchmarks/faults.svg)", "![a](benchmarks/faults.svg)", id="an image"),
        pytest.param("README.md", "[a](#b) [c](https://x)", "[a](#b) [c](https://x)", id="here, and another site"),
        pytest.param("README.md", "[two\nlines](docs/elastic.md)", "[two\nlines](../elastic.md)", id="over two lines"),
        pytest.param("README.md", "[`a`](docs/elastic.md)", "[`a`](../elastic.md)", id="code as its text"),
        pytest.param("README.md", "`[a](docs/elastic.md)`", "`[a](docs/elastic.md)`", id="in code"),
        pytest.param("README.md", "```\n[a](docs/elastic.md)\n```", "```\n[a](docs/elastic.md)\n```", id="in a block"),
        pytest.param("README.md", "[a](docs/none.md)", "[a](docs/none.md)", id="nothing is there: mkdocs reports it"),
        pytest.param("README.md", "[a](../../etc)", "[a](../../etc)", id="outside of the repository"),
    ],
)
def test_a_link_between_pages(page: str, written: str, on_the_site: str, checkout: Path) -> None:
    assert relinked(written, page, SOURCES, Repository(checkout, ADDRESS)) == on_the_site


@pytest.mark.parametrize(
    ("written", "with_address", "without"),
    [
        pytest.param("[the script](../examples/train.py)", f"[the script]({ADDRESS}/blob/main/examples/train.py)",
                     "the script (`examples/train.py`)", id="a file"),
        pytest.param("[all](../examples/presets)", f"[all]({ADDRESS}/tree/main/examples/presets)",
                     "all (`examples/presets`)", id="a folder"),
        pytest.param("[`crd.yaml`](../crd.yaml)", f"[`crd.yaml`]({ADDRESS}/blob/main/crd.yaml)", "`crd.yaml`",
                     id="its text names it"),
    ],
)  # fmt: skip
def test_a_link_to_a_source_file(written: str, with_address: str, without: str, checkout: Path) -> None:
    assert relinked(written, "docs/README.md", SOURCES, Repository(checkout, ADDRESS)) == with_address
    assert relinked(written, "docs/README.md", SOURCES, Repository(checkout)) == without


def test_the_images_of_a_page() -> None:
    text = "![a](faults.svg) [b](c.svg) `![d](e.svg)` ![f](https://x/y.svg)"
    assert images(text, "benchmarks/README.md") == ["benchmarks/faults.svg"]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        pytest.param("Text:\n- a\n- b", "Text:\n\n- a\n- b", id="a list behind a line of text"),
        pytest.param("- a\nmore\n- b", "- a\nmore\n- b", id="an item that continues"),
        pytest.param("- a\n  - b\n    c", "- a\n    - b\n    c", id="a list within a list"),
        pytest.param("1. a\n\n   ```text\n   b\n     c\n   ```\n2. d",
                     "1. a\n\n    ```text\n    b\n      c\n    ```\n2. d",
                     id="a block within an item"),
        pytest.param("```\na\n- b\n  - c\n```", "```\na\n- b\n  - c\n```", id="in a block"),
        pytest.param("- a\n\nText\n  more", "- a\n\nText\n  more", id="after the list"),
        pytest.param("# A\n- b", "# A\n- b", id="behind a heading"),
    ],
)  # fmt: skip
def test_lists_are_written_for_python_markdown(written: str, wanted: str) -> None:
    assert for_python_markdown(written) == wanted
