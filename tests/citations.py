"""Tests that pages name: which they are, and which of them there are.

Files are read, not imported: importing all tests takes longer than most of them.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
_CITED = re.compile(r"`((?:tests|e2e)/[\w/]+\.py::[^`]+)`")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def cited(text: str) -> list[str]:
    """The tests that a text names, by pytest's ids."""
    return _CITED.findall(text)


def collected(names: Iterable[str]) -> frozenset[str]:
    """Those of these names that are tests: the file has the function, and its parameters have the id in brackets."""
    return frozenset(name for name in names if _exists(name))


def _exists(name: str) -> bool:
    file, _, rest = name.partition("::")
    function, bracket, words = rest.partition("[")
    found = _tests(ROOT / file).get(function)
    return found is not None and (not bracket or _composed(words.removesuffix("]"), found | _shared(ROOT / file)))


def _composed(words: str, texts: frozenset[str]) -> bool:
    """Whether an id is one of the texts, or some of them with hyphens between: a test may have several tables."""
    parts = words.split("-")
    heads = (("-".join(parts[:count]), "-".join(parts[count:])) for count in range(1, len(parts)))
    return words in texts or any(head in texts and _composed(tail, texts) for head, tail in heads)


@functools.cache
def _tests(path: Path) -> dict[str, frozenset[str]]:
    """Each test of a file with the texts of its decorators."""
    if not path.is_file():
        return {}
    functions = [node for node in _tree(path).body if isinstance(node, _FUNCTIONS)]
    return {
        function.name: _texts(function.decorator_list) for function in functions if function.name.startswith("test_")
    }


@functools.cache
def _shared(path: Path) -> frozenset[str]:
    """The texts outside of functions, in a file and in the tests' modules that it imports: tables of cases."""
    imported = [_shared(other) for other in _imported(path)]
    own = _texts(node for node in _tree(path).body if not isinstance(node, _FUNCTIONS))
    return own.union(*imported)


def _imported(path: Path) -> Iterator[Path]:
    for node in _tree(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            folder = ROOT / str(node.module).replace(".", "/")
            yield from filter(
                Path.is_file, (folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names))
            )


def _texts(nodes: Iterable[ast.AST]) -> frozenset[str]:
    every = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant))
    return frozenset(part.value for part in every if isinstance(part.value, str))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
