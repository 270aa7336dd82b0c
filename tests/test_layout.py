"""The house: the name of the source root shadows nothing, the agent needs nothing."""

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


def test_no_file_has_the_marks_of_a_conflict() -> None:
    found = subprocess.run(
        ["git", "grep", "-n", "-e", f"^{'<' * 7} ", "-e", f"^{'>' * 7} "], cwd=ROOT, capture_output=True, text=True
    )
    assert found.stdout == "", "resolve them"
