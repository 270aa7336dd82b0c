"""Draws a terminal's lines as SVG with rich. Pure. The picture loads nothing, not even a font."""

import io
from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

_FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font: {char_height}px Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def draw(name: str, command: str, lines: Sequence[str], columns: int, made: str) -> str:
    """Return the picture of a command with its styled lines; `made` is how and when it was made."""
    console = Console(
        record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(Text(f"$ {command}", style="bold"))
    for line in _without_empty_end(lines):
        console.print(Text.from_ansi(line))
    picture = console.export_svg(title=command, theme=SVG_EXPORT_THEME, code_format=_FORMAT, unique_id=name)
    about = f"<title>{escape(command)}</title>\n<desc>{escape(made)}</desc>\n<style>"
    return "\n".join(line.rstrip() for line in picture.replace("<style>", about, 1).splitlines() if line.strip()) + "\n"


def _without_empty_end(lines: Sequence[str]) -> Sequence[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]
