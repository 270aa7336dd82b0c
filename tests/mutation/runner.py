"""How mutmut runs the tests of a mutant: each in a process that inherits all that does not depend on the mutant.

mutmut's own way costs ten times as much: it collects the tests for each mutant, asks at each call of a function which
mutant is active, and shows where in a file of thousands of mutants a test failed.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import get_config
from mutmut import __main__ as main
from mutmut.configuration import config
from mutmut.mutation import trampoline
from mutmut.runners.harness import PytestRunner
from mutmut.utils.file_utils import change_cwd
from mutmut.workers import isolation

_FAILED, _BROKEN = 1, 3
"""Exit codes of pytest."""
_ORIGINAL = "_mutmut_orig"
_KILLERS = Path("mutants") / "killers"
_functions: list[tuple[str, dict[str, Any], Any]] = []
"""The mutated functions: the module, the mutants by name, and what callers call."""
_wrap = trampoline.wrap_in_trampoline
_time = main.estimated_worst_case_time


def install() -> None:
    """Have mutmut use this runner; before it imports what it has mutated."""
    main.estimated_worst_case_time = _module_and_time
    isolation.PytestRunner, isolation.ForkRunner = Collected, Prepared  # type: ignore[misc]
    trampoline.wrap_in_trampoline = _remember


def _module_and_time(mutant: str) -> tuple[str, float]:
    """Have mutmut try one module after the other, so that an interrupted run has whole results of some."""
    return mutant.rpartition(".")[0], _time(mutant)


def _remember(mutants: dict[str, Any], is_classmethod: bool = False) -> Callable[[Any], Any]:
    wrap = _wrap(mutants, is_classmethod)

    def remember(function: Any) -> Any:
        wrapper = wrap(function)
        if not is_classmethod:
            _functions.append((function.__module__, mutants, wrapper))
        return wrapper

    return remember


def _redirect(wrapper: Any, function: Any) -> None:
    """Have a mutated function call this, and ask no more which mutant is active."""
    wrapper.__closure__[wrapper.__code__.co_freevars.index("trampoline")].cell_contents = function


def activate(mutant: str) -> None:
    """Have callers of the mutant's function call the mutant."""
    module, _, name = mutant.rpartition(".")
    for where, mutants, wrapper in _functions:
        if where == module and name in mutants:
            _redirect(wrapper, mutants[name])


class Collected(PytestRunner):
    """Runs tests that it has collected before; first those that noticed other mutants of the same function."""

    tests: dict[str, pytest.Item] = {}  # noqa: RUF012  # empty until `collect`

    def collect(self) -> None:
        """Collect the tests of the group, in the way of `pytest.main`."""
        # Without capture: that of the parent would take the log of mutmut.
        arguments = ["--rootdir=.", "-x", "-qq", "-s", "-p", "no:xdist", *config().pytest_add_cli_args]
        with change_cwd("mutants"):
            arguments += config().pytest_add_cli_args_test_selection
            settings = get_config(arguments)
            settings.parse(arguments)
            settings._do_configure()
            session = pytest.Session.from_config(settings)
            settings.hook.pytest_sessionstart(session=session)
            settings.hook.pytest_collection(session=session)
        self.tests = {item.nodeid: item for item in session.items}
        pytest.Function.repr_failure = lambda _item, _failure: ""  # type: ignore[method-assign, assignment]

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run the tests until one fails, in the process of a mutant."""
        if mutant_name is None:
            return super().run_tests(mutant_name=mutant_name, tests=tests)
        activate(mutant_name)
        killers = _KILLERS.absolute() / (mutant_name.rpartition("__mutmut_")[0] or "none")
        items = [self.tests[test] for test in _killers_first(killers, tests)]
        session = items[0].session
        with change_cwd("mutants"):
            for item, following in zip(items, [*items[1:], None], strict=True):
                try:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                except BaseException:  # `-x`, pytest.exit, an error of pytest itself: the test did not pass
                    return _FAILED if session.testsfailed else _BROKEN
                if session.testsfailed:
                    with killers.open("a") as log:
                        log.write(f"{item.nodeid}\n")
                    return _FAILED
        return 0


def _killers_first(killers: Path, tests: Iterable[str]) -> list[str]:
    known = Counter(killers.read_text().splitlines()) if killers.exists() else Counter[str]()
    return sorted(tests, key=lambda test: -known[test])


class Prepared(isolation.ForkRunner):
    """Collects the tests before the first mutant."""

    def run_clean_tests(self, tests: Iterable[str]) -> int:
        """Leave it to `startup`, which has collected the tests."""
        return 0

    def startup(self) -> None:
        """Collect the tests, and check that they pass without a mutant."""
        _KILLERS.mkdir(exist_ok=True)
        self.test_runner.collect()  # type: ignore[attr-defined]
        for _, mutants, wrapper in _functions:
            _redirect(wrapper, mutants[_ORIGINAL])
        names = {name for found in isolation.state().tests_by_mangled_function_name.values() for name in found}
        if isolation.run_in_fork(self.test_runner.run_tests, mutant_name="", tests=sorted(names)):
            raise SystemExit("the collected tests fail without a mutant")
        super().startup()
