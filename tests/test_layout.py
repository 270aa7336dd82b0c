"""The name of the source root shadows nothing, and the agent needs no other package."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator"
AGENT = SOURCE / "pytorchjob_agent"
NO_MODULES = {"script.lightning", "workers.startup.sitecustomize", "command.startup.sitecustomize"}
"""What a script of Lightning imports, and what only Python's own `site` imports."""
IMPORT = """
import importlib, sys
sys.path.insert(0, {root!r})
for name in {names!r}:
    try:
        importlib.import_module(f"pytorchjob_agent.{{name}}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            print(name, error)
print("fine")
"""


def python(code: str, *flags: str) -> str:
    """What a fresh interpreter prints, started in the repository's root."""
    command = [sys.executable, *flags, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_operator_is_the_standard_librarys_also_in_the_root() -> None:
    assert (
        Path(python("import operator; print(operator.__file__)")).parent
        == Path(python("import os; print(os.__file__)")).parent
    )


def test_the_agent_needs_no_other_package_than_torch() -> None:
    """`-S` leaves site-packages out, `-I` the environment and the working folder."""
    paths = (path.relative_to(AGENT).with_suffix("") for path in AGENT.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths} - NO_MODULES - {"__init__"}
    assert python(IMPORT.format(root=str(SOURCE), names=sorted(names)), "-I", "-S") == "fine"
