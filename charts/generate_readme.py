"""Writes the table of values in the chart's README from the comments of values.yaml; `--check` only compares."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parent / "pytorchjob-operator"
_MARKED = re.compile(r"(<!-- values: [^\n]*-->\n).*(<!-- end of values -->)", re.DOTALL)
_KEY = re.compile(r"( *)([A-Za-z]+):")


class Value(NamedTuple):
    """One documented value: its dotted key, what it is for, its default."""

    key: str
    text: str
    default: Any


def documented(source: str) -> Iterator[Value]:
    """Yield each key with a `# --` comment above it, in the order of the file."""
    values, path, text = yaml.safe_load(source), [""], list[str]()
    for line in source.splitlines():
        comment = line.strip()
        if comment.startswith("# -- "):
            text = [comment[5:]]
        elif comment.startswith("# ") and text:
            text.append(comment[2:])
        elif found := _KEY.match(line):
            path = [*path[: len(found[1]) // 2], found[2]]
            if text:
                yield Value(".".join(path), " ".join(text), _at(values, path))
            text = []


def _at(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values[key]
    return values


def table(source: str) -> str:
    """The Markdown table of all documented values."""
    rows = (f"| `{one.key}` | {one.text} | `{_default(one.default)}` |\n" for one in documented(source))
    return "| Value | What it is | Default |\n| --- | --- | --- |\n" + "".join(rows)


def _default(value: Any) -> str:
    return '""' if value == "" else yaml.safe_dump(value, default_flow_style=True, width=10_000).split("\n")[0]


def readme() -> str:
    """The README with its table brought up to date."""
    rows = table((CHART / "values.yaml").read_text())
    return _MARKED.sub(lambda mark: mark[1] + rows + mark[2], (CHART / "README.md").read_text())


def main() -> None:
    """Write the README, or with `--check` fail if it is not up to date."""
    target, wanted = CHART / "README.md", readme()
    if sys.argv[1:] != ["--check"]:
        target.write_text(wanted)
    elif target.read_text() != wanted:
        sys.exit(f"{target} is not up to date with values.yaml: run `make generate`")


if __name__ == "__main__":
    main()
