"""Measures lengths, parameters, errors, `Any`, mocks, repeated literals.

`python -m tests.house` prints these rows below its own.
"""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

Function = ast.FunctionDef | ast.AsyncFunctionDef
Row = tuple[str, int | str]
_SOURCE, _TESTS = "operator", "tests"
_DICTS = {"dict", "Mapping", "MutableMapping"}
_LABEL, _VARIABLE = r"[a-z0-9.-]+\.(?:org|io|com|k8s)/[\w.-]+", r"[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+"
_REASON = r"[A-Z][a-z]+(?:[A-Z][a-z]+)+"
_MARKED = re.compile(f"{_LABEL}|{_VARIABLE}|{_REASON}")


def _trees(folder: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def _functions(trees: dict[Path, ast.Module]) -> list[Function]:
    return [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]


def _length(function: Function) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def _spread(functions: list[Function]) -> str:
    lengths = [_length(function) for function in functions]
    return f"{median(lengths):.0f}, {quantiles(lengths, n=10)[-1]:.0f}, {max(lengths)}"


def _lines(trees: dict[Path, ast.Module]) -> int:
    return sum(len(path.read_text().splitlines()) for path in trees)


def _parameters(function: Function) -> int:
    if any("click." in ast.unparse(decorator) for decorator in function.decorator_list):
        return 0  # a command has a parameter for each of its options
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def errors(trees: dict[Path, ast.Module]) -> list[str]:
    """The classes that are exceptions, found by their bases."""
    known = {name for name, value in vars(builtins).items() if isinstance(value, type)}
    known = {name for name in known if issubclass(vars(builtins)[name], BaseException)}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found: list[str] = []
    for _ in classes:
        more = [node.name for node in classes if node.name not in found and _inherits(node, known | {*found})]
        if not more:
            break
        found += more
    return found


def _inherits(node: ast.ClassDef, names: set[str]) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] in names for base in node.bases)


def anys(tree: ast.AST, *, in_dict: bool = False) -> Iterator[bool]:
    """One item for each use of `Any`: whether it is the value type of a dict."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Name) and node.id == "Any":
            yield in_dict
        inside = isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] in _DICTS
        yield from anys(node, in_dict=in_dict or inside)


def _broad(trees: dict[Path, ast.Module]) -> Iterator[bool]:
    """One item for each `except Exception` and wider: whether it always raises again."""
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            ):
                yield isinstance(node.body[-1], ast.Raise)


def _repeated(trees: dict[Path, ast.Module]) -> list[str]:
    """Labels, annotations, variables and reasons that more than one line of source has as a literal."""
    classes = {
        node.name if isinstance(node, ast.ClassDef) else node.asname or node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.alias)
    }
    places = Counter(
        value
        for value, _, _ in {
            (node.value, path, node.lineno)
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _MARKED.fullmatch(node.value)
        }
    )
    return sorted(value for value, count in places.items() if count > 1 and value not in classes)


def rows(root: Path) -> Iterator[Row]:
    """The rows of the table."""
    source, tests = _trees(root / _SOURCE), _trees(root / _TESTS)
    functions = _functions(source)
    cases = [function for function in _functions(tests) if function.name.startswith("test_")]
    yield "functions: median, 90th percentile, most lines", _spread(functions)
    yield "functions of more than 45 lines", sum(1 for function in functions if _length(function) > 45)
    yield "largest file: lines", max(len(path.read_text().splitlines()) for path in source)
    yield "most parameters", max(map(_parameters, functions))
    yield "lines of tests for each line of source", f"{_lines(tests) / _lines(source):.2f}"
    yield "test functions", len(cases)
    yield "test functions: median, 90th percentile, most lines", _spread(cases)
    everything = [path for folder in ("tests", "e2e", "benchmarks") for path in (root / folder).rglob("*.py")]
    texts = [path.read_text() for path in everything if path.name != Path(__file__).name]
    yield (
        "`mock.patch` and `unittest.mock`",
        sum(len(re.findall(r"mock\.patch|unittest\.mock", text)) for text in texts),
    )
    yield "`monkeypatch.setattr`", sum(text.count("monkeypatch.setattr") for text in texts)
    yield "error classes", len(errors(source))
    yield "`except Exception` and wider", len([*_broad(source)])
    yield "of these, those that do not raise again", [*_broad(source)].count(False)
    uses = [in_dict for tree in source.values() for in_dict in anys(tree)]
    yield "`Any` as the value type of a dict", uses.count(True)
    yield "`Any` elsewhere", uses.count(False)
    yield "`match` statements", sum(isinstance(node, ast.Match) for tree in source.values() for node in ast.walk(tree))
    yield "labels, variables and reasons that are a literal twice", len(_repeated(source))
