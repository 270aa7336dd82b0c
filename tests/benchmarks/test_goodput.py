"""The outside clock of a scripted life: what was noted, as seconds of each class."""

import pytest

from benchmarks.goodput import Clock, outside

LIFE = [
    ("created", 0, 3.0),
    ("placed", 7, 5.0),
    ("born", 0, 10.0),
    ("step", 1, 12.0),
    ("step", 2, 13.0),
    ("saved", 2, 14.5),
    ("step", 3, 15.5),
    ("crashes", 4, 15.5),
    ("born", 0, 15.75),
    ("loads", 0, 16.75),
    ("loaded", 2, 18.75),
    ("step", 3, 19.75),
    ("step", 4, 20.75),
    ("hangs", 5, 20.75),
    ("recognised", 0, 28.75),
    ("born", 0, 30.0),
    ("step", 3, 31.0),
    ("step", 4, 32.0),
    ("step", 5, 33.0),
    ("suspended", 0, 33.5),
    ("step", 6, 34.0),
    ("resumed", 0, 40.0),
    ("placed", 8, 42.0),
    ("born", 0, 45.0),
    ("step", 4, 46.0),
    ("step", 5, 47.0),
    ("step", 6, 48.0),
    ("ends", 6, 48.0),
    ("ended", 0, 48.25),
    ("over", 0, 48.5),
    ("ended", 0, 15.7),
    ("ended", 0, 33.75),
]


def test_every_second_of_a_life_has_its_class() -> None:
    found = outside(LIFE)
    assert {name: seconds for name, seconds in found.items() if seconds} == {
        "waitingForPods": 2 + 2,
        "programStartup": 5 + 2 + 1 + 1 + 1 + 1,
        "running": 1 + 1 + 1 + 1 + 0.5 + 1 + 0.25,
        "unproductiveCheckpointSaveTime": 1.5,
        "unproductiveCheckpointRestoreTime": 2.0,
        "wastedProgressFromDisruption": 1 + 1,
        "infrastructureRecoveryFromDisruption": 0.25 + 1.25 + 3,
        "hung": 8.0,
        "suspended": 6.5,
        "other": 0.25,
    }
    assert sum(found.values()) == pytest.approx(48.5 - 3.0)


def test_the_clock_notes_what_a_run_prints() -> None:
    clock = Clock()
    for line in (
        "- SuccessfulCreatePod: Created pod: life-worker-0",
        "[worker-0] [rank0]: Current thread 0x1 (most recent call first):",
        "[worker-0] [rank0]: Current thread 0x2 (most recent call first):",
        "- SuccessfulCreatePod: Created pod: life-worker-0",
        "- PyTorchJobSucceeded: PyTorchJob default/life successfully completed.",
    ):
        clock.read(line)
    assert [what for what, _, _ in clock.lines] == ["created", "recognised", "over"]
