"""Writes generated text into a page that people write: what stands between two marks is replaced."""


def insert_between(page: str, marks: tuple[str, str], text: str) -> str:
    """Return the page with this text between its marks, on lines of its own. Raises ValueError without the marks."""
    head, begin, rest = page.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"the page has no lines {marks[0]!r} and {marks[1]!r}")
    return f"{head}{begin}\n{text}\n{end}{tail}"
