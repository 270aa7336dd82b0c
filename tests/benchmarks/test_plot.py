"""The picture of steps over time is well-formed, and shows each contender, its faults, and where it stood still."""

from pathlib import Path
from xml.etree import ElementTree

from benchmarks.recovery import chaos, ledgers
from benchmarks.recovery.chaos import Outcome
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


def outcome(contender: str, **ledger: float) -> Outcome:
    return Outcome(
        contender, 30, 1, {"pod-deleted": 2}, 0, 100, 0.1, 0.9, 3, True, (), ledger, {}, "2026-01-01", "a machine"
    )


def test_the_picture_of_lost_time() -> None:
    found = [outcome("ours", running=90, detection=4, hung=6), outcome("ours-memory", running=98, detection=2)]
    drawn = ElementTree.fromstring(ledgers.svg(found))
    texts = [str(element.text) for element in drawn.iter() if element.tag.endswith("text")]
    assert texts == [
        "ours: 10 s lost of 100 s, 2 faults; 90.0% running",
        "ours-memory: 2 s lost of 100 s, 2 faults; 98.0% running",
        "detection",
        "hung",
    ]
    widths = {
        str(next(iter(element)).text): float(element.attrib["width"])
        for element in drawn.iter()
        if element.tag.endswith("rect") and len(element)
    }
    assert widths["hung: 6.0 s"] == 3 * widths["detection: 2.0 s"], "one scale for all"


def test_an_outcome_of_chaos_is_kept_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "chaos.jsonl"
    for each in (outcome("ours-memory", hung=1), outcome("ours", hung=2), outcome("ours-memory", hung=3)):
        found = chaos.keep(path, each)
    assert found == chaos.load(path) == [outcome("ours", hung=2), outcome("ours-memory", hung=3)]
    assert "the operator's ledger: hung 3.0 s (100.0%)" in found[1].words()


def test_what_a_fault_costs_is_what_is_lost_until_the_next_one() -> None:
    lost = [("", 5.0), ("pod-deleted", 6.0), ("worker-killed", 7.5), ("pod-deleted", 8.0), ("", 10.25)]
    assert chaos.costs(lost) == {"pod-deleted": [1.5, 2.25], "worker-killed": [0.5]}
