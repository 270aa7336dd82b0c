"""Writes the operator's settings into a page: `python -m pytorchjob_operator.settings_page FILE`.

The file keeps its text; what stands between the two marks is replaced. `make generate` calls it.
"""

from dataclasses import fields

from pytorchjob_operator.generated import MARKS, insert_between, rewrite
from pytorchjob_operator.settings import Settings, variable


def table() -> str:
    """Return a row for each setting: its variable, its default, its meaning."""
    rows = [
        f"| `{variable(setting.name)}` | {_shown(setting.default)} | {setting.metadata['help']} |"
        for setting in fields(Settings)
    ]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def _shown(default: object) -> str:
    text = str(default).lower() if isinstance(default, bool) else str(default or "")
    return f"`{text}`" if text else ""


def insert(text: str) -> str:
    """Return the page with the present table. Raises ValueError without the marks."""
    return insert_between(text, MARKS, table())


if __name__ == "__main__":
    rewrite(insert)
