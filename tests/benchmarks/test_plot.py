"""The picture of steps over time is well-formed, and shows each contender, its faults, and where it stood still."""

from pathlib import Path
from xml.etree import ElementTree

from benchmarks.recovery.plot import svg
from benchmarks.recovery.series import Series, keep, load

QUICK = Series("tuned", ((1.0, 10), (2.0, 20), (3.0, 30)), ((1.5, "worker-killed"),), (), 4.0)
STUCK = Series("default", ((1.0, 10),), ((1.5, "worker-killed"),), ("pod-deleted",), 4.0)


def test_the_picture() -> None:
    drawn = ElementTree.fromstring(svg([STUCK, QUICK]))
    texts = [str(element.text) for element in drawn.iter() if element.tag.endswith("text")]
    assert "torchrun c10d, tuned: 30 steps, 1 faults" in texts
    assert "torchrun c10d, torch's defaults: 10 steps, 1 faults, 1 more found nothing to hit" in texts
    lines = [element.attrib["points"].split() for element in drawn.iter() if element.tag.endswith("polyline")]
    assert [len(points) for points in lines] == [3, 4]
    assert lines[0][-1].split(",")[1] == lines[0][-2].split(",")[1], "a level line to the end"


def test_a_series_is_kept_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    for one in (QUICK, STUCK, QUICK):
        keep(path, one)
    assert load(path) == [STUCK, QUICK]
