"""Measures the shape of the code: `python -m tests.house [CHECKOUT]` prints the figures of decision 0018.

It reads any checkout, also an older one, so that before and after come from the same command.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import shape

PACKAGES = ("pytorchjob_agent", "pytorchjob_operator")


class House:
    """The Python modules below `operator/` of one checkout, with their imports of each other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        source = root / "operator"
        self.files = {self._name(path.relative_to(source)): path for path in source.rglob("*.py")}
        self.trees = {name: ast.parse(path.read_text()) for name, path in self.files.items()}
        self.imports = {name: set(self._imports(name)) - {name} for name in self.files}
        self.levels = cache(self._levels)

    @staticmethod
    def _name(path: Path) -> str:
        return ".".join(path.with_suffix("").parts).removesuffix(".__init__")

    def _imports(self, name: str) -> Iterator[str]:
        """Imports at the top of a module: lazy ones and those for the type checker are not part of the levels."""
        package = name if self.files[name].name == "__init__.py" else name.rpartition(".")[0]
        for node in self.trees[name].body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.files)
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                for alias in node.names:
                    full = f"{module}.{alias.name}"
                    if full in self.files:
                        yield full
                    elif module in self.files:
                        yield module

    def _levels(self, name: str) -> int:
        """Length of the longest chain of imports below a module."""
        return 1 + max((self.levels(below) for below in self.imports[name]), default=0)

    def of(self, package: str) -> list[str]:
        return [name for name in self.files if name.split(".")[0] == package]

    def lines(self, names: list[str]) -> int:
        return sum(len(self.files[name].read_text().splitlines()) for name in names)


def rows(root: Path) -> Iterator[tuple[str, int]]:
    """The rows of the table."""
    house = House(root)
    agent = house.of("pytorchjob_agent")
    folders = {house.files[name].parent for name in agent}
    flat = [path for path in (root / "operator" / "pytorchjob_agent").glob("*.py") if path.name != "__init__.py"]
    yield "agent: packages", len(folders) - 1
    yield "agent: modules directly in the top folder", len(flat)
    yield "agent: most modules in one folder", max(Counter(house.files[name].parent for name in agent).values())
    yield "agent: levels of imports", max(house.levels(name) for name in agent)
    importers = Counter(target for name in house.files for target in house.imports[name])
    yield "modules with one importer", sum(1 for name in house.files if importers[name] == 1)
    small = [name for name, path in house.files.items() if len(path.read_text().splitlines()) < 30]
    yield "modules of fewer than 30 lines, with one importer", sum(1 for name in small if importers[name] == 1)
    classes = Counter(
        node.name
        for tree in house.trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    yield "class names that occur twice or more", sum(1 for count in classes.values() if count > 1)
    names = Counter(path.stem for path in house.files.values() if not path.stem.startswith("__"))
    yield "file names that occur twice or more", sum(1 for count in names.values() if count > 1)
    rounds = [name for name in house.files if name.startswith("pytorchjob_operator.rounds")]
    text = "\n".join(house.files[name].read_text() for name in rounds)
    yield "`rounds`: checks for None", len(re.findall(r"is (?:not )?None", text))
    yield "`rounds`: lines", house.lines(rounds)
    yield "agent: lines", house.lines(agent)
    yield "operator: lines", house.lines(house.of("pytorchjob_operator"))
    yaml = [path for folder in ("crds", "charts", "manifests") for path in (root / folder).rglob("*.yaml")]
    generated = [path.read_text() for path in yaml if "kind: CustomResourceDefinition" in path.read_text()]
    yield "generated YAML: lines", sum(len(text.splitlines()) for text in generated)


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    for what, number in rows(root):
        print(f"| {what} | {number:,} |")
    for what, value in shape.rows(root):
        print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
