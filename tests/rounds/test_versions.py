"""Which member's versions or clock differ, and from what."""

from dataclasses import replace

import pytest

from pytorchjob_operator.rounds.values import Member
from pytorchjob_operator.rounds.versions import unequal_clocks, unequal_versions


def member(index: int, **told: str | None) -> Member:
    return Member(index, f"pod-{index}", "", "", None, "10.0.0.1", 1, 0.0, versions=told)


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        pytest.param(["2.15.0", "2.15.1"], None, id="a patch is no difference"),
        pytest.param(["2.15.0+cu132", "2.15.0+cpu"], None, id="nor is the build"),
        pytest.param(["2.15.0"], None, id="one agrees with itself"),
        pytest.param(
            ["2.15.0", "2.4.0", "2.15.0"],
            "torch versions differ: pod-1 has 2.4.0, the others have 2.15",
            id="one is odd",
        ),
        pytest.param(
            ["2.15.0", None, "2.15.0"], "torch versions differ: pod-1 has none, the others have 2.15", id="one has none"
        ),
        pytest.param(
            [None, None, "2.4.0"], "torch versions differ: pod-2 has 2.4.0, the others have none", id="most have none"
        ),
        pytest.param(
            ["2.15.0"] * 4 + ["2.4.0"] * 3,
            "torch versions differ: pod-4 has 2.4.0, pod-5 has 2.4.0, pod-6 has 2.4.0, the others have 2.15",
            id="three odd ones are all named",
        ),
        pytest.param(
            ["2.15.0"] * 5 + ["2.4.0"] * 4,
            "torch versions differ: pod-5 has 2.4.0, pod-6 has 2.4.0, pod-7 has 2.4.0 and 1 more, the others have 2.15",
            id="of many odd ones three are named",
        ),
    ],
)
def test_torch(torch: list[str | None], found: str | None) -> None:
    words = unequal_versions([member(index, torch=version) for index, version in enumerate(torch)])
    assert words == (None if found is None else f"{found}; use one image for all replicas")


def test_a_sentence_ends_after_1000_characters() -> None:
    members = [replace(member(index, torch=torch), pod="p" * 999) for index, torch in enumerate(("2.15.0", "2.4.0"))]
    assert len(unequal_versions(members) or "") == 1000


def test_the_build_of_a_short_version_is_no_difference() -> None:
    assert unequal_versions([member(0, nccl="2.26+cuda12"), member(1, nccl="2.26")]) is None


def test_what_a_member_does_not_tell_is_not_compared() -> None:
    assert unequal_versions([member(0, cuda="13.2"), member(1)]) is None


def test_every_difference_is_told() -> None:
    words = unequal_versions([member(0, cuda="13.2", python="3.11"), member(1, cuda="12.9", python="3.12")]) or ""
    assert "cuda versions differ" in words
    assert "python versions differ" in words


def at(index: int, offset: float | None) -> Member:
    return Member(index, f"pod-{index}", "", "", None, "10.0.0.1", 1, 0.0, clock_offset=offset)


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        pytest.param([], None, id="nobody"),
        pytest.param([100.0, None, None], None, id="who tells no time is not compared"),
        pytest.param([100.0, 105.0], None, id="five seconds are nothing"),
        pytest.param([100.0, 106.0], "pod-1 is 6 s ahead of pod-0's", id="two"),
        pytest.param([100.0, 100.5, 160.0], "pod-2 is 60 s ahead of pod-0's", id="one is ahead"),
        pytest.param([100.0, 110.0, 120.0], "pod-2 is 20 s ahead of pod-0's", id="both ends are equally far away"),
        pytest.param([100.0, 40.0, 100.5, None], "pod-1 is 60 s behind pod-2's", id="one is behind"),
    ],
)
def test_clocks(offsets: list[float | None], found: str | None) -> None:
    words = unequal_clocks([at(index, offset) for index, offset in enumerate(offsets)])
    assert words == (None if found is None else f"the clock of {found}; synchronize the nodes' clocks (NTP, chrony)")
