"""Writes the table of causes into the page about troubleshooting: `python -m pytorchjob.view.causes.page PAGE`."""

from collections.abc import Iterator

from pytorchjob.view.causes.cause import Cause, Step, Symptom, on_the_page
from pytorchjob.view.causes.table import CAUSES
from pytorchjob_operator.generated import insert_between, rewrite

MARKS = "<!-- begin: causes, written by `make generate` -->", "<!-- end -->"


def write(page: str) -> str:
    """Return the page with the present causes. Raises ValueError without the two marks."""
    return insert_between(page, MARKS, "\n".join(_sections()))


def _sections() -> Iterator[str]:
    for symptom in Symptom:
        yield f"\n## {symptom.value}\n"
        causes = [cause for cause in CAUSES if cause.symptom is symptom]
        yield "| what you see | cause |\n| --- | --- |"
        yield from (f"| {_cell(cause.sign)} | [{cause.name}](#{cause.name.lower()}) |" for cause in causes)
        for cause in causes:
            yield from _entry(cause)


def _entry(cause: Cause) -> Iterator[str]:
    yield f"\n### {cause.name}\n"
    yield f"{on_the_page(cause.why)}\n"
    yield from (_step(number, step) for number, step in enumerate(cause.steps, 1))


def _step(number: int, step: Step) -> str:
    command = f" `{on_the_page(step.command)}`" if step.command else ""
    return f"{number}. {on_the_page(step.text)}{command}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    rewrite(write)
