"""What became of the mutants: the score of each module, and each survivor as the line that changed."""

import ast
import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

KILLED, SURVIVED, TIMEOUT, UNCHECKED = "killed", "survived", "timeout", "unchecked"
_OUTCOMES = {0: SURVIVED, 5: SURVIVED, 33: SURVIVED, 36: TIMEOUT, 24: TIMEOUT, -24: TIMEOUT, 152: TIMEOUT, 2: UNCHECKED}
"""Exit codes of mutmut's processes; 5 and 33 mean that no test reaches the mutant."""
_ORIGINAL = "orig"
Key = tuple[str, str, str, str]
"""Module, function, the line before, the line after."""
_MANGLED = re.compile(r"\bx(_|ǁ\w*ǁ)(?P<name>\w+?)__mutmut_\w+")


@dataclass(frozen=True)
class Mutant:
    """One change of a function, and what became of it."""

    module: str
    function: str
    before: str
    """The changed lines, stripped and joined."""
    after: str
    outcome: str

    @property
    def key(self) -> Key:
        """What names the mutant as long as its line stays what it is."""
        return self.module, self.function, self.before, self.after


@dataclass(frozen=True)
class Score:
    """The result of one module."""

    mutants: int
    killed: int
    timeouts: int
    """Killed too: the tests did not end in time."""
    explained: int
    """Survivors of the committed list, with a reason each."""
    survived: int
    unchecked: int = 0

    @property
    def percent(self) -> float:
        """Killed mutants, of those that were tried and are not explained."""
        tried = self.killed + self.timeouts + self.survived
        return 100.0 * (self.killed + self.timeouts) / tried if tried else 100.0


def read(mutated: Path, module: str) -> list[Mutant]:
    """Return the mutants of a module from the file that mutmut wrote, and from its results beside that file."""
    codes: dict[str, int | None] = json.loads(Path(f"{mutated}.meta").read_text())["exit_code_by_key"]
    functions = _functions(mutated.read_text())
    found = []
    for key, code in codes.items():
        name = key.rpartition(".")[2]
        stem = name.rpartition("_")[0]
        before, after = _difference(functions[f"{stem}_{_ORIGINAL}"], functions[name])
        outcome = UNCHECKED if code is None else _OUTCOMES.get(code, KILLED)
        found.append(Mutant(module, _readable(stem), before, after, outcome))
    return found


def _functions(text: str) -> dict[str, list[str]]:
    """Return the lines of all functions by their names, methods included."""
    lines = text.splitlines()
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: [_signature(lines[node.lineno - 1]), *lines[node.lineno : node.end_lineno]] for node in nodes}


def _signature(line: str) -> str:
    """Return the first line of a function, with the name that it has in the source."""
    return _MANGLED.sub(lambda found: found["name"], line)


def _difference(before: Iterable[str], after: Iterable[str]) -> tuple[str, str]:
    changes = [line for line in difflib.ndiff([*before], [*after]) if line[0] in "+-"]
    old, new = (" ".join(line[2:].strip() for line in changes if line[0] == sign) for sign in "-+")
    return old, new


def _readable(stem: str) -> str:
    """Return `Class.method` for mutmut's `xǁClassǁmethod__mutmut`, and `function` for `x_function__mutmut`."""
    return stem.removesuffix("__mutmut").removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")


def explained(path: Path) -> Mapping[Key, str]:
    """Return the reasons of the committed list by the mutants' keys."""
    entries = tomllib.loads(path.read_text()).get("survivor", [])
    return {(entry["module"], entry["function"], entry["before"], entry["after"]): entry["why"] for entry in entries}


def stale(keys: Iterable[Key], source: Path) -> list[Key]:
    """Return the entries that name no mutant: their function is gone, or no longer has their line."""
    keys = [*keys]
    functions = {module: _sources(source / f"{module}.py") for module in {key[0] for key in keys}}
    return [key for key in keys if _joined(key[2]) not in functions[key[0]].get(key[1], "")]


def _sources(path: Path) -> dict[str, str]:
    """Return the text of all functions by their names, methods as `Class.method`; nothing if the module is gone."""
    text = path.read_text() if path.exists() else ""
    lines, body = text.splitlines(), ast.parse(text).body
    nodes = [("", node) for node in body]
    nodes += [(f"{node.name}.", child) for node in body if isinstance(node, ast.ClassDef) for child in node.body]
    return {
        f"{prefix}{node.name}": _joined("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        for prefix, node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _joined(text: str) -> str:
    return " ".join(text.split())


def score(mutants: Iterable[Mutant], reasons: Mapping[Key, str]) -> Score:
    """Count the outcomes of a module's mutants."""
    mutants = [*mutants]
    survivors = [mutant for mutant in mutants if mutant.outcome == SURVIVED]
    known = sum(mutant.key in reasons for mutant in survivors)
    counts = {name: sum(mutant.outcome == name for mutant in mutants) for name in (KILLED, TIMEOUT, UNCHECKED)}
    return Score(len(mutants), counts[KILLED], counts[TIMEOUT], known, len(survivors) - known, counts[UNCHECKED])


def unexplained(mutants: Iterable[Mutant], reasons: Mapping[Key, str]) -> Mapping[tuple[str, str], list[Mutant]]:
    """Return the survivors without a reason, by module and function."""
    found: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        if mutant.outcome == SURVIVED and mutant.key not in reasons:
            found.setdefault((mutant.module, mutant.function), []).append(mutant)
    return found
