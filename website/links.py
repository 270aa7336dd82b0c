"""Where a page lies on the site, and where its links lead there. No mkdocs: text in, text out.

Pages of docs/ lie at the top of the site; every other page of the repository lies below `project/`, at its own path.
A link to a file that is no page becomes a link to the repository, or plain text where no address of one is known.
"""

import posixpath
import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

PAGES = "docs"
OTHERS = "project"
_PARTS = re.compile(
    r"^(?P<indent> *)```.*?^(?P=indent)```"  # a block of code
    r"|(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)"
    r"|`[^`\n]*`",
    re.DOTALL | re.MULTILINE,
)
_ELSEWHERE = re.compile(r"[a-z]+:|#")
_ITEM = re.compile(r"(?:[-*] |\d+\. )")
_PROSE = re.compile(r"[^\s|#<`-]")


@dataclass(frozen=True)
class Repository:
    """The checkout that the site is made of."""

    root: Path
    address: str = ""
    """Where people read its files, without a slash at the end; empty if that is not known."""

    def of(self, path: str) -> str:
        """Return the address of a file or folder on the main branch; empty if it is not known."""
        kind = "tree" if (self.root / path).is_dir() else "blob"
        return f"{self.address}/{kind}/main/{path}" if self.address else ""


def on_site(path: str) -> str:
    """Return where a file of the repository lies in the site's sources."""
    folder, _, rest = path.partition("/")
    return rest if folder == PAGES and rest else f"{OTHERS}/{path}"


def in_repository(source: str) -> str:
    """Return which file of the repository lies at a place of the site's sources."""
    folder, _, rest = source.partition("/")
    return rest if folder == OTHERS and rest else f"{PAGES}/{source}"


def images(text: str, page: str) -> list[str]:
    """Return the images of a page, by their paths in the repository."""
    targets = [found["target"] for found in _PARTS.finditer(text) if found["image"]]
    return [_resolved(target, page) for target in targets if not _ELSEWHERE.match(target)]


def relinked(text: str, page: str, sources: Set[str], repository: Repository) -> str:
    """Return a page of the repository with the links that it has on the site, whose sources are these.

    A link to nothing stays as it is: mkdocs reports it.
    """

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or _ELSEWHERE.match(target):
            return found[0]
        path, _, anchor = target.partition("#")
        there = _resolved(path, page)
        if on_site(there) in sources:
            shown = posixpath.relpath(on_site(there), posixpath.dirname(on_site(page)) or ".")
            return f"{found['image']}[{found['text']}]({shown}{'#' * bool(anchor)}{anchor})"
        if there.startswith("..") or not (repository.root / there).exists():
            return found[0]
        address = repository.of(there)
        return f"[{found['text']}]({address})" if address else _named(found["text"], there)

    return _PARTS.sub(replaced, text)


def _resolved(target: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _named(text: str, path: str) -> str:
    """A link's text with the file that it means: nothing leads there."""
    return text if path in text else f"{text} (`{path}`)"


def for_python_markdown(text: str) -> str:
    """Return a page as Python-Markdown needs it, which reads lists otherwise than CommonMark does.

    A list begins after an empty line, and what belongs to an item stands 4 columns to the right.
    """
    lines, before, shift, in_list, in_code = list[str](), "", 0, False, False
    for line in text.split("\n"):
        if not in_code:
            indent = len(line) - len(line.lstrip(" "))
            item = bool(_ITEM.match(line))
            if item and not in_list and _PROSE.match(before):
                lines.append("")
            in_list = item or (in_list and bool(indent or before or not line))
            shift = 4 - indent if in_list and indent in (2, 3) else 0
        in_code ^= line.lstrip().startswith("```")
        lines.append(" " * shift + line if line else line)
        before = line
    return "\n".join(lines)
