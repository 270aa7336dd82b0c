"""A checkout for each test, and a real registry on this machine."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apiserver.cluster import BIN
from tests.release.support import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def with_docker(checkout: Checkout) -> Checkout:
    """A checkout on a machine with Docker."""
    checkout.fake_docker()
    return checkout


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """The address of a registry that has nothing yet."""
    with started() as address:
        yield address


@contextmanager
def started(*arguments: str) -> Iterator[str]:
    """The address of a registry that runs with these arguments, as long as the test wants it."""
    program = BIN / "registry"
    if not program.is_file():
        pytest.fail(f"{program} is missing: run `make binaries-tests` (needs Go)", pytrace=False)
    command = ["setpriv", "--pdeathsig", "KILL", str(program), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
