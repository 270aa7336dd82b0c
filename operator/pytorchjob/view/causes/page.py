"""Writes the causes into the pages about troubleshooting: `python -m pytorchjob.view.causes.page PAGE`.

PAGE has the signs of all causes by symptom. The folder of its name has a page for each symptom, with the remedies.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytorchjob.view.causes.cause import CREATE_AGAIN, Cause, Remedy, Symptom, on_the_page
from pytorchjob.view.causes.table import CAUSES
from pytorchjob_operator.generated import insert_between

MARKS = "<!-- begin: causes, written by `make generate` -->", "<!-- end -->"
_WORDS = re.compile(r"[^a-z]+")


def write(page: str, folder: str) -> str:
    """Return the page with the present signs; `folder` has the symptoms' pages. Raises ValueError without its marks."""
    return insert_between(page, MARKS, "\n".join(_index(folder)))


def pages() -> Mapping[str, str]:
    """Return the page of each symptom, by the name of its file."""
    return {name_of(symptom): "\n".join(_page(symptom)) + "\n" for symptom in Symptom}


def name_of(symptom: Symptom) -> str:
    """Return the name of a symptom's file: its sentence in small letters."""
    return f"{_WORDS.sub('-', symptom.value.lower()).strip('-')}.md"


def _causes(symptom: Symptom) -> list[Cause]:
    return [cause for cause in CAUSES if cause.symptom is symptom]


def _index(folder: str) -> Iterator[str]:
    for symptom in Symptom:
        place = f"{folder}/{name_of(symptom)}"
        yield f"\n## {symptom.value}\n"
        yield "| what you see | cause |\n| --- | --- |"
        yield from (f"| {_cell(each.sign)} | [{each.name}]({place}#{each.name.lower()}) |" for each in _causes(symptom))
    yield ""


def _page(symptom: Symptom) -> Iterator[str]:
    yield f"# {symptom.value}\n"
    yield "<!-- written by `make generate` -->"
    yield "[Troubleshooting](../troubleshooting.md) has the signs of these causes. Words in capitals stand for names in"
    yield "your cluster. `CHART` is the operator's chart, and `FILE` the job's YAML file."
    causes = _causes(symptom)
    if any(CREATE_AGAIN in cause.steps for cause in causes):
        yield f"To create a job again: `{on_the_page(CREATE_AGAIN.command)}`"
    for cause in causes:
        yield f"\n## {cause.name}\n"
        yield f"{on_the_page(cause.why)}\n"
        yield from (_step(number, step) for number, step in enumerate(cause.steps, 1))


def _step(number: int, step: Remedy) -> str:
    command = f" `{on_the_page(step.command)}`" if step.command and step != CREATE_AGAIN else ""
    return f"{number}. {on_the_page(step.text)}{command}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _main(page: Path) -> None:
    folder = page.with_suffix("")
    page.write_text(write(page.read_text(), folder.name))
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
