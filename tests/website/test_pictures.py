"""The pictures of the docs: a page shows each, `make pictures` draws each, and none has anything of the machine."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from monitoring.fleet import FLEET
from monitoring.job import JOB
from tests.prose import pages
from website.links import images
from website.pictures.scenes import SCENES, Scene

ROOT = Path(__file__).parents[2]
FOLDER = "docs/pictures"
DRAWN = sorted(f"{FOLDER}/{name}.svg" for name in [*(scene.name for scene in SCENES), FLEET.uid, JOB.uid])
MOST_BYTES = 150_000
MADE = re.compile(r"of a real run, drawn by `make pictures` on \d{4}-\d\d-\d\d$")
OF_A_MACHINE = re.compile(r"/(?:root|home|tmp|work|Users)/|https?://(?!www\.w3\.org/2000/svg)")


def shown() -> set[str]:
    """The pictures that pages show."""
    found = {path for page in pages() for path in images(page.read_text(), str(page.relative_to(ROOT)))}
    return {path for path in found if path.startswith(f"{FOLDER}/")}


def texts(picture: str) -> Iterator[str]:
    for element in ElementTree.fromstring(picture).iter():
        if element.tag.endswith(("text", "title", "desc")):
            yield "".join(element.itertext()).replace("\xa0", " ")


def test_every_picture_is_drawn_by_make_pictures_and_shown_by_a_page() -> None:
    assert sorted(str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).iterdir()) == DRAWN
    assert sorted(shown()) == DRAWN


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_small_and_has_its_date_and_nothing_of_the_machine(name: str) -> None:
    picture = (ROOT / name).read_text()
    assert len(picture.encode()) < MOST_BYTES
    assert [text for text in texts(picture) if MADE.search(text)]
    assert OF_A_MACHINE.findall(picture) == []
    assert socket.gethostname() not in picture


@pytest.mark.parametrize(
    "text", ["python is /root/x/bin/python", "in /tmp/a.yaml", "url(https://fonts.example.com/a)", "/home/a/b"]
)
def test_what_belongs_to_a_machine_is_noticed(text: str) -> None:
    assert OF_A_MACHINE.search(text)


@pytest.mark.parametrize("scene", [pytest.param(scene, id=scene.name) for scene in SCENES])
def test_a_picture_of_a_terminal_shows_its_command_and_what_it_is_for(scene: Scene) -> None:
    # A terminal breaks long lines anywhere between two words.
    text = " ".join("\n".join(texts((ROOT / FOLDER / f"{scene.name}.svg").read_text())).split())
    assert f"$ {scene.command}" in text
    assert [words for words in scene.shows if " ".join(words.split()) not in text] == []
