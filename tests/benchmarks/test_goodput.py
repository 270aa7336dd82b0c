"""The outside clock of a scripted life: what the script has noted, as seconds of each class."""

import pytest

from benchmarks.goodput import Clock, outside

LIFE = [
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
    ("born", 0, 30.0),
    ("step", 3, 31.0),
    ("step", 4, 32.0),
    ("step", 5, 33.0),
    ("ends", 5, 33.0),
]


def test_every_second_of_a_life_has_its_class() -> None:
    found = outside(LIFE, Clock(created=5.0, recognised=28.75, ended=33.5))
    assert {name: seconds for name, seconds in found.items() if seconds} == {
        "programStartup": 5 + 2 + 1 + 1 + 1,
        "productive": 1 + 1 + 1 + 1,
        "unproductiveCheckpointSaveTime": 1.5,
        "unproductiveCheckpointRestoreTime": 2.0,
        "wastedProgressFromDisruption": 1.0,
        "infrastructureRecoveryFromDisruption": 0.25 + 1.25,
        "hung": 8.0,
        "other": 0.5,
    }
    assert sum(found.values()) == pytest.approx(33.5 - 5.0)
