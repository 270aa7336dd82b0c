"""When the imports of warm workers begin, and the memory at which `auto` changes its mind."""

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.workers.start_choice import (
    PRELOAD_BYTES,
    TORCH_MODULES,
    RequestedStart,
    StartRequest,
    choose_start,
    preloaded_modules,
    starts_early,
)

MEMBER = {COORDINATOR: "operator:9443"}


@pytest.mark.parametrize(
    ("env", "early"),
    [
        pytest.param({**MEMBER, "PYTORCHJOB_START_MODE": "warm"}, True, id="a warm member"),
        pytest.param({**MEMBER, "PYTORCHJOB_START_MODE": "auto"}, True, id="maybe warm"),
        pytest.param({**MEMBER, "PYTORCHJOB_START_MODE": "cold"}, False, id="a cold member"),
        pytest.param(MEMBER, False, id="cold by default"),
        pytest.param({"PYTORCHJOB_START_MODE": "warm"}, False, id="without a coordinator"),
        pytest.param(
            {**MEMBER, "PYTORCHJOB_START_MODE": "warm", "PYTORCHJOB_PRELOAD": "numpy"}, False, id="more to import"
        ),
    ],
)
def test_the_imports_begin_early(env: dict[str, str], early: bool) -> None:
    assert starts_early(env) is early


def test_without_the_variable_only_torch_is_imported_ahead() -> None:
    assert preloaded_modules({}) == TORCH_MODULES


@pytest.mark.parametrize(
    ("memory", "warm"),
    [
        pytest.param(8 * PRELOAD_BYTES, True, id="eight times the fork server's"),
        pytest.param(8 * PRELOAD_BYTES - 1, False, id="less"),
    ],
)
def test_the_least_memory_of_a_warm_start(memory: int, warm: bool) -> None:
    assert choose_start(StartRequest(RequestedStart.AUTO, memory=memory)).warm is warm
