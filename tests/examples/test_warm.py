"""The example of warm restarts."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.local.jobs import Run

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]


def test_the_workers_of_both_starts_have_their_imports_already(
    start: Callable[..., Run], example: Callable[..., dict[str, Any]]
) -> None:
    run = start(example("warm"))
    assert run.wait() == 0, run.out + run.err
    assert sorted(re.findall(r"rank=(\d) restart=(\d) start=(\w+)", run.out)) == [
        ("0", "0", "warm"),
        ("0", "1", "warm"),
        ("1", "0", "warm"),
        ("1", "1", "warm"),
    ]
    assert "workers start cold" not in run.out
    assert "rank 1 fails at step 20, as FAIL_AT asks" in run.err
    assert "restart=1 step=40" in run.out
