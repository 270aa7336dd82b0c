"""The house: the name of the source root shadows nothing, the agent needs nothing, files and functions stay small."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator"
AGENT = SOURCE / "pytorchjob_agent"
NEED_TORCH = {
    "checkpoint.distributed",
    "checkpoint.sharing",
    "checkpoint.staging",
    "checkpoint.states",
    "checkpoint.storage",
    "command.launcher",
    "rendezvous.exit_barrier",
    "rendezvous.handler",
    "rendezvous.loop",
    "rendezvous.membership",
    "rendezvous.round_store",
    "rendezvous.round_workers",
    "rendezvous.run",
    "rendezvous.single_node",
    "torch_compat",
    "workers.torch_output",
    "workers.torch_spec",
    "workers.warm",
}
NO_MODULES = {"__init__", "script.lightning", "workers.startup.sitecustomize"}
"""The package itself, what a script of Lightning imports, and what only Python's own `site` imports."""
FILES = sorted(SOURCE.rglob("*.py"))

MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 350, 50, 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python(code: str, *flags: str) -> str:
    """What a fresh interpreter prints, started in the repository's root."""
    command = [sys.executable, *flags, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_source_root_is_no_package() -> None:
    assert not (SOURCE / "__init__.py").exists()


def test_operator_is_the_standard_librarys_also_in_the_root() -> None:
    assert (
        Path(python("import operator; print(operator.__file__)")).parent
        == Path(python("import os; print(os.__file__)")).parent
    )


def test_the_agent_starts_without_any_other_package() -> None:
    """`-S` leaves site-packages out, `-I` the environment and the working folder."""
    paths = (path.relative_to(AGENT).with_suffix("") for path in AGENT.rglob("*.py"))
    modules = sorted({".".join(path.parts).removesuffix(".__init__") for path in paths} - NEED_TORCH - NO_MODULES)
    imports = "; ".join(f"import pytorchjob_agent.{name}" for name in modules)
    assert python(f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {imports}; print('fine')", "-I", "-S") == "fine"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in sorted(AGENT.rglob("*.py"))])
def test_the_agent_imports_the_standard_library_torch_and_itself(path: Path) -> None:
    assert {*imported(path)} <= {*sys.stdlib_module_names, "torch", "pytorchjob_agent"}


def imported(path: Path) -> Iterator[str]:
    """The top-level names of all imports, lazy ones too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield AGENT.name if node.level else (node.module or "").partition(".")[0]


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(SOURCE))) for path in FILES])
def test_a_file_and_its_functions_are_small(path: Path) -> None:
    assert list(too_big(path)) == []


def too_big(path: Path) -> Iterator[str]:
    """What is beyond the limits in a file."""
    text = path.read_text()
    lines = text.count("\n")
    if lines > MOST_LINES:
        yield f"{lines} lines, at most {MOST_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            yield from _too_big(node)


def _too_big(function: Function) -> Iterator[str]:
    lines = (function.end_lineno or 0) - function.lineno + 1
    if lines > MOST_FUNCTION_LINES:
        yield f"{function.name}: {lines} lines, at most {MOST_FUNCTION_LINES}"
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    parameters = [name for name in names if name not in ("self", "cls")]
    if any("click." in ast.unparse(decorator) for decorator in function.decorator_list):
        return  # a command has a parameter for each of its options
    if len(parameters) > MOST_PARAMETERS:
        yield f"{function.name}: {len(parameters)} parameters, at most {MOST_PARAMETERS}"


def test_the_limits_are_noticed(tmp_path: Path) -> None:
    big = tmp_path / "big.py"
    big.write_text("def f(a, b, c, d, e, *, g):\n" + "    pass\n" * 60 + "#\n" * 300)
    assert list(too_big(big)) == [
        "361 lines, at most 350",
        "f: 61 lines, at most 50",
        "f: 6 parameters, at most 5",
    ]


def test_no_file_has_the_marks_of_a_conflict() -> None:
    found = subprocess.run(
        ["git", "grep", "-n", "-e", f"^{'<' * 7} ", "-e", f"^{'>' * 7} "], cwd=ROOT, capture_output=True, text=True
    )
    assert found.stdout == "", "resolve them"
