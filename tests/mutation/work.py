"""The folder in which mutmut works on one group: the sources as `src`, the tests, and a configuration of its own."""

import json
import os
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.mutation.plan import Group

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "mutate"
LAUNCHER = Path(__file__).parent / "launch.py"
SOURCE = "src"
"""mutmut leaves this folder out of the names of modules."""
_TEST_SECONDS = 30
_TIMEOUT = {"timeout_constant": 15.0, "timeout_multiplier": 4.0}
"""A mutant that takes longer than four times (the time of its tests plus 15 s) hangs."""
_KILLED = (1, 3)
"""Exit codes of pytest: a test failed."""
_LOGGING = [r"_log\.", r"\blog_line\(", r"\bsay\("]
"""Lines of the log are for people; tests do not check them word by word."""


def modules() -> list[str]:
    """Return all modules of the operator and the agent, as paths below the source root without `.py`."""
    source = ROOT / "operator"
    return sorted(str(path.relative_to(source).with_suffix("")) for path in source.rglob("*.py"))


def folder(group: Group) -> Path:
    """Return the folder of a group."""
    return OUT / group.name.replace("/", "-")


def mutated(group: Group, module: str) -> Path:
    """Return the file that mutmut writes for a module."""
    return folder(group) / "mutants" / SOURCE / f"{module}.py"


def prepare(group: Group, mutate: Iterable[str], *, fresh: bool) -> Path:
    """Make the folder, or renew what has changed in it; `fresh` forgets all results."""
    work = folder(group)
    if fresh:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    _copy(ROOT / "operator", work / SOURCE)
    for name in ("tests", "docs"):
        _copy(ROOT / name, work / name)
    mutate = [*mutate]
    settings = work / "pyproject.toml"
    if settings.exists() and settings.read_text() != configuration(group, mutate):
        _unmutate(work)
    settings.write_text(configuration(group, mutate))
    return work


def _unmutate(work: Path) -> None:
    """Have mutmut make the files of other modules, and find their tests; the results that are known stay.

    It takes a file that it only copied for one that has no mutants, and the known tests for those of all modules.
    """
    for path in (work / "mutants").rglob("*.py"):
        path.unlink()
    (work / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy the Python files and the tests' data that have changed; a file that is gone goes in the copy too."""
    ignored = shutil.ignore_patterns("__pycache__", "mutation")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored, copy_function=_copy_changed)
    for path in [*target.rglob("*")]:
        if path.is_file() and not (source / path.relative_to(target)).exists():
            path.unlink()


def _copy_changed(source: str, target: str) -> str:
    known = os.stat(target).st_mtime if os.path.exists(target) else None
    return target if known == os.stat(source).st_mtime else shutil.copy2(source, target)


def configuration(group: Group, mutate: Iterable[str]) -> str:
    """Return the `pyproject.toml` of a group: pytest's settings of this repository, and mutmut's."""
    pytest = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    pytest |= {"pythonpath": [SOURCE, "."], "testpaths": ["tests"], "timeout": _TEST_SECONDS}
    without = [word for test in group.without for word in ("--deselect" if "::" in test else "--ignore", test)]
    mutmut = {
        "source_paths": [SOURCE],
        "only_mutate": [f"{SOURCE}/{module}.py" for module in mutate],
        "pytest_add_cli_args_test_selection": [*tests(group), *without],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-m", "not torch and not apiserver and not cluster"],
        "do_not_mutate_patterns": _LOGGING,
        "also_copy": ["docs"],
        "use_git_change_detection": False,
        **_TIMEOUT,
    }
    return f"[tool.pytest.ini_options]\n{_toml(pytest)}\n[tool.mutmut]\n{_toml(mutmut)}"


def tests(group: Group) -> list[str]:
    """Return the group's tests as paths below the repository's root."""
    found = [str(path.relative_to(ROOT)) for pattern in group.tests for path in sorted(ROOT.glob(pattern))]
    return [path for path in found if path not in group.without]  # pytest ignores no path that it is given


def _toml(table: Mapping[str, object]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def forget_survivors(files: Iterable[Path]) -> None:
    """Have mutmut try again what was not killed: it does not notice by itself that a test has changed.

    A timeout is tried again too: on a busy machine it proves little.
    """
    for path in (Path(f"{file}.meta") for file in files):
        if path.exists():
            known = json.loads(path.read_text())
            codes = known["exit_code_by_key"]
            known["exit_code_by_key"] = {key: code if code in _KILLED else None for key, code in codes.items()}
            path.write_text(json.dumps(known))


def run(work: Path) -> int:
    """Try the mutants, one at a time; what is tried stays known if this is interrupted."""
    env = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}  # the tests' packages, from this environment
    command = [str(OUT / "venv/bin/python"), str(LAUNCHER), "run", "--max-children", "1"]
    with (work / "mutmut.log").open("wb") as log:
        return subprocess.run(command, cwd=work, env=env, stdout=log, stderr=log, check=False).returncode
