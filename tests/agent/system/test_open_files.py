"""The agent of a pod with many workers may open the files that it needs for them."""

import resource
from collections.abc import Iterator

import pytest

from pytorchjob_agent.system.open_files import allow_for


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """A process that may open 1,024 files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("workers", "files"),
    [
        pytest.param(8, 1024, id="a few workers: the limit stays"),
        pytest.param(200, 1856, id="200 workers"),
    ],
)
def test_the_limit_fits_the_workers(workers: int, files: int) -> None:
    allow_for(workers)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == files


def test_more_than_the_hard_limit_is_not_asked_for() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allow_for(10**9)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
