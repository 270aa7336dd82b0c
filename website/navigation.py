"""Which pages the site has, in reading order."""

from collections.abc import Iterator, Mapping, Sequence

Entry = str | Mapping[str, "Entry | Sequence[Entry]"]
"""A page, or one entry from a title to a page or to entries, as mkdocs.yml has them."""


def sources(entries: "Entry | Sequence[Entry]") -> Iterator[str]:
    """The pages of a navigation, in order, as mkdocs names them."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, Mapping):
        for below in entries.values():
            yield from sources(below)
    else:
        for entry in entries:
            yield from sources(entry)
