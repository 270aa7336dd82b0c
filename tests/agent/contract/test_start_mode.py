"""Which way workers start, for what is asked and what there is."""

import pytest

from pytorchjob_agent.contract.environment import ContractError
from pytorchjob_agent.contract.start_mode import TORCH_MODULES, Request, StartMode, decide, mode, modules

GIB = 1 << 30


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, StartMode.COLD, id="nothing is set: cold"),
        pytest.param({"PYTORCHJOB_START_MODE": ""}, StartMode.COLD, id="empty: cold"),
        pytest.param({"PYTORCHJOB_START_MODE": "warm"}, StartMode.WARM, id="warm"),
        pytest.param({"PYTORCHJOB_START_MODE": "auto"}, StartMode.AUTO, id="auto"),
    ],
)
def test_what_is_asked(env: dict[str, str], expected: StartMode) -> None:
    assert mode(env) == expected


def test_another_word_is_refused() -> None:
    with pytest.raises(ContractError, match=r"PYTORCHJOB_START_MODE: 'hot' is no way to start: .* cold, warm, auto"):
        mode({"PYTORCHJOB_START_MODE": "hot"})


@pytest.mark.parametrize(
    ("text", "more"),
    [
        pytest.param("", (), id="none"),
        pytest.param("transformers, my_pkg.data,", ("transformers", "my_pkg.data"), id="blanks and a last comma"),
        pytest.param("torch,numpy", ("numpy",), id="torch is there already"),
    ],
)
def test_what_is_imported_ahead(text: str, more: tuple[str, ...]) -> None:
    assert modules({"PYTORCHJOB_PRELOAD": text}) == (*TORCH_MODULES, *more)


@pytest.mark.parametrize("name", ["train.py/x", "a b", "-c", ".a", "a..b", "1a"])
def test_what_is_no_module_is_refused(name: str) -> None:
    with pytest.raises(ContractError, match=r"PYTORCHJOB_PRELOAD: .* is no module's name: expected"):
        modules({"PYTORCHJOB_PRELOAD": name})


@pytest.mark.parametrize(
    ("request_", "warm", "words"),
    [
        pytest.param(Request(StartMode.COLD), False, "nobody asked", id="cold is cold"),
        pytest.param(Request(StartMode.AUTO), True, "nothing speaks against it", id="auto, no limit of memory"),
        pytest.param(Request(StartMode.AUTO, memory=16 * GIB), True, "nothing", id="auto, much memory"),
        pytest.param(
            Request(StartMode.AUTO, memory=2 * GIB), False, "limit is 2048 MiB: below 3200", id="auto, little"
        ),
        pytest.param(Request(StartMode.WARM, memory=2 * GIB), True, "is warm", id="warm in little memory: as asked"),
        pytest.param(Request(StartMode.WARM, linux=False), False, "not Linux", id="another system"),
        pytest.param(Request(StartMode.WARM, no_python=True), False, "--no-python", id="a program of another kind"),
        pytest.param(Request(StartMode.WARM, run_path=True), False, "--run-path", id="torch's own way"),
        pytest.param(Request(StartMode.WARM, numa_binding=True), False, "--numa-binding", id="bound to a node"),
        pytest.param(
            Request(StartMode.AUTO, start_method="fork"), False, "--start-method=fork", id="auto, another start method"
        ),
        pytest.param(Request(StartMode.WARM, start_method="fork"), True, "is warm", id="warm wins over it"),
    ],
)
def test_the_verdict_and_its_reason(request_: Request, warm: bool, words: str) -> None:
    verdict = decide(request_)
    assert verdict.warm is warm
    assert words in verdict.reason
