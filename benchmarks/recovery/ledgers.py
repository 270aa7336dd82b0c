"""Where the time of the chaos runs went: what was lost, stacked by class, drawn as SVG. Pure."""

from collections.abc import Iterator, Sequence

from benchmarks.recovery.chaos import Outcome, lost
from benchmarks.recovery.plot import FONT
from pytorchjob_operator.goodput.classes import TimeClass

_LOST = tuple(each.value for each in TimeClass if each is not TimeClass.RUNNING)
_COLORS = (
    "#0072b2", "#009e73", "#56b4e9", "#cc79a7", "#d55e00", "#e69f00", "#f0e442", "#999999", "#332288", "#000000",
)  # fmt: skip
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP, _LINE = 960, 20, 20, 28, 34, 30, 18


def svg(found: Sequence[Outcome]) -> str:
    """A bar for each contender, as long as the time that it lost, and a legend of the classes."""
    classes = [name for name in _LOST if any(each.ledger.get(name) for each in found)]
    longest = max((lost(each.ledger) for each in found), default=0.0) or 1.0
    height = _TOP + len(found) * (_BAR + _GAP) + _LINE * (len(classes) + 1)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' role='img'>",
        "<title>Time lost in the chaos run, by class</title>",
        f"<rect width='{_WIDTH}' height='{height}' fill='white'/>",
    ]
    for number, outcome in enumerate(found):
        parts += _bar(outcome, _TOP + number * (_BAR + _GAP), (_WIDTH - _LEFT - _RIGHT) / longest)
    for number, name in enumerate(classes):
        y = _TOP + len(found) * (_BAR + _GAP) + _LINE * number
        parts.append(f"<rect x='{_LEFT}' y='{y}' width='14' height='10' fill='{_color(name)}'/>")
        parts.append(f"<text {FONT} x='{_LEFT + 20}' y='{y + 9}'>{name}</text>")
    return "\n".join([*parts, "</svg>", ""])


def _color(name: str) -> str:
    return _COLORS[_LOST.index(name) % len(_COLORS)]


def _bar(outcome: Outcome, y: float, scale: float) -> Iterator[str]:
    whole = sum(outcome.ledger.values()) or 1.0
    yield (
        f"<text {FONT} x='{_LEFT}' y='{y - 6}'>{outcome.contender}: {lost(outcome.ledger):.0f} s lost of {whole:.0f} s,"
        f" {sum(outcome.struck.values())} faults; {1 - lost(outcome.ledger) / whole:.1%} running</text>"
    )
    x = float(_LEFT)
    for name in _LOST:
        seconds = outcome.ledger.get(name, 0.0)
        if seconds > 0:
            yield (
                f"<rect x='{x:.1f}' y='{y}' width='{seconds * scale:.1f}' height='{_BAR}' fill='{_color(name)}'>"
                f"<title>{name}: {seconds:.1f} s</title></rect>"
            )
            x += seconds * scale
