"""Which way workers start, for what is asked and what there is."""

import pytest

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.workers.start_choice import (
    TORCH_MODULES,
    RequestedStart,
    StartRequest,
    choose_start,
    preloaded_modules,
    requested_start,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, RequestedStart.COLD, id="nothing is set: cold"),
        pytest.param({"PYTORCHJOB_START_MODE": ""}, RequestedStart.COLD, id="empty: cold"),
        pytest.param({"PYTORCHJOB_START_MODE": "warm"}, RequestedStart.WARM, id="warm"),
        pytest.param({"PYTORCHJOB_START_MODE": "auto"}, RequestedStart.AUTO, id="auto"),
        pytest.param({"PYTORCHJOB_START_MODE": "ready"}, RequestedStart.READY, id="ready"),
    ],
)
def test_what_is_asked(env: dict[str, str], expected: RequestedStart) -> None:
    assert requested_start(env) == expected


def test_another_word_is_refused() -> None:
    with pytest.raises(
        ContractError, match=r"PYTORCHJOB_START_MODE: 'hot' is not a start mode: .* cold, warm, auto, ready"
    ):
        requested_start({"PYTORCHJOB_START_MODE": "hot"})


@pytest.mark.parametrize(
    ("text", "more"),
    [
        pytest.param("", (), id="none"),
        pytest.param("transformers, my_pkg.data,", ("transformers", "my_pkg.data"), id="blanks and a last comma"),
        pytest.param("torch,numpy", ("numpy",), id="torch is there already"),
    ],
)
def test_what_is_imported_ahead(text: str, more: tuple[str, ...]) -> None:
    assert preloaded_modules({"PYTORCHJOB_PRELOAD": text}) == (*TORCH_MODULES, *more)


@pytest.mark.parametrize("name", ["train.py/x", "a b", "-c", ".a", "a..b", "1a"])
def test_what_is_no_module_is_refused(name: str) -> None:
    with pytest.raises(ContractError, match=r"PYTORCHJOB_PRELOAD: .* is not a module name: expected"):
        preloaded_modules({"PYTORCHJOB_PRELOAD": name})


@pytest.mark.parametrize(
    ("request_", "ready"),
    [
        (StartRequest(RequestedStart.READY), True),
        (StartRequest(RequestedStart.READY, virtual_local_rank=True), False),
        (StartRequest(RequestedStart.WARM), False),
    ],
)
def test_when_processes_wait_with_their_contexts(request_: StartRequest, ready: bool) -> None:
    assert (choose_start(request_).warm, choose_start(request_).ready) == (True, ready)


@pytest.mark.parametrize(
    ("request_", "warm", "words"),
    [
        pytest.param(StartRequest(RequestedStart.COLD), False, "is cold", id="cold is cold"),
        pytest.param(
            StartRequest(RequestedStart.AUTO), True, "no option and no limit forbids it", id="auto, no limit of memory"
        ),
        pytest.param(
            StartRequest(RequestedStart.AUTO, memory=16 * GIB), True, "no limit forbids", id="auto, much memory"
        ),
        pytest.param(
            StartRequest(RequestedStart.AUTO, memory=2 * GIB),
            False,
            "limit is 2048 MiB: keeping torch in memory twice needs 3200",
            id="auto, little",
        ),
        pytest.param(
            StartRequest(RequestedStart.WARM, memory=2 * GIB), True, "is warm", id="warm in little memory: as asked"
        ),
        pytest.param(StartRequest(RequestedStart.WARM, linux=False), False, "not Linux", id="another system"),
        pytest.param(
            StartRequest(RequestedStart.WARM, no_python=True), False, "--no-python", id="a program of another kind"
        ),
        pytest.param(StartRequest(RequestedStart.WARM, run_path=True), False, "--run-path", id="torch's own way"),
        pytest.param(
            StartRequest(RequestedStart.WARM, numa_binding=True), False, "--numa-binding", id="bound to a node"
        ),
        pytest.param(
            StartRequest(RequestedStart.AUTO, start_method="fork"),
            False,
            "--start-method=fork",
            id="auto, another start method",
        ),
        pytest.param(StartRequest(RequestedStart.WARM, start_method="fork"), True, "is warm", id="warm wins over it"),
    ],
)
def test_the_verdict_and_its_reason(request_: StartRequest, warm: bool, words: str) -> None:
    verdict = choose_start(request_)
    assert verdict.warm is warm
    assert words in verdict.reason
