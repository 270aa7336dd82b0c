"""What the verdict about each kind of hang has to say: rank 1 is at fault in all of them."""

from benchmarks.hangs.measure import Verdict

RANK = 1
_STEP = "step"
_NOT_BEGUN = "CollectiveNotBegun"
_ANY_RANK = ("all-sleep",)
_MUTE = ("stopped",)
"""Ranks that write no stack, so that their line is not known."""
_OTHERS_AT = {
    "all-sleep": "",
    "spins": "spins",
    "waits-for-device": "waits_for_device",
    "another-order": "another_order",
}
"""The function of the script in which the others wait for it; without a line here it is the one that does a step."""
_FAULTS = {
    "all-sleep": "",
    "another-collective": "CollectiveDiffers",
    "left-the-loop": "CollectiveDiffers",
    "another-order": "CollectivesInOtherOrder",
}


def mistakes(kind: str, verdict: Verdict) -> list[str]:
    """Return what the verdict gets wrong: nothing, or some of rank, line, collective, and line of the others."""
    function = "" if kind in _MUTE else kind.replace("-", "_")
    found = {
        "rank": verdict.rank == RANK or kind in _ANY_RANK,
        "line": _function(verdict.place) == function,
        "collective": verdict.kind == _FAULTS.get(kind, _NOT_BEGUN),
        "line of the others": _function(verdict.others_at) == _OTHERS_AT.get(kind, _STEP),
    }
    return [name for name, right in found.items() if not right]


def _function(place: str) -> str:
    """Return the function of a place like `train.py:8 load()`."""
    return place.rpartition(" ")[2].removesuffix("()")
