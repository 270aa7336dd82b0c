"""The pictures of the docs have nothing of the machine on which they were drawn."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from monitoring.fleet import FLEET
from monitoring.job import JOB
from website.pictures.scenes import SCENES

ROOT = Path(__file__).parents[2]
FOLDER = "docs/pictures"
DRAWN = sorted(f"{FOLDER}/{name}.svg" for name in [*(scene.name for scene in SCENES), FLEET.uid, JOB.uid])
MOST_BYTES = 150_000
MADE = re.compile(r"of a real run, drawn by `make pictures` on \d{4}-\d\d-\d\d$")
OF_A_MACHINE = re.compile(r"/(?:root|home|tmp|work|Users)/|https?://(?!www\.w3\.org/2000/svg)")


def texts(picture: str) -> Iterator[str]:
    for element in ElementTree.fromstring(picture).iter():
        if element.tag.endswith(("text", "title", "desc")):
            yield "".join(element.itertext()).replace("\xa0", " ")


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
