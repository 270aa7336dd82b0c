"""The page of the kept runs."""

from . import kept


def test_the_page_has_the_kept_runs() -> None:
    assert kept.RUNS.path.read_text() == kept.RUNS.page()
    assert [run["style"] for run in kept.RUNS.load() if run["wrong"]] == []
