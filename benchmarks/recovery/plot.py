"""Step over time through the faults of series.py, drawn as SVG. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from benchmarks.recovery.contenders import CONTENDERS
from benchmarks.recovery.series import Series

WIDTH, HEIGHT = 960, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 80, 50
COLORS = ("#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MOST_TICKS = 8
FONT = "font-family='sans-serif' font-size='12'"


def svg(found: Sequence[Series]) -> str:
    """A line for each contender, and a thin upright for each fault that hit it, in its colour."""
    right = max(series.seconds for series in found)
    top = max((step for series in found for _, step in series.points), default=1)
    scale = _Scale(right, top)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>",
        "<title>Steps done over time, through ten faults</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        *_axes(scale),
    ]
    for number, series in enumerate(found):
        parts += _line(scale, series, number)
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    def __init__(self, seconds: float, steps: int) -> None:
        self.seconds, self.steps = seconds, steps

    def x(self, seconds: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds, 1)

    def y(self, step: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * step / self.steps, 1)


def _axes(scale: _Scale) -> Iterator[str]:
    for step in _ticks(scale.steps):
        y = scale.y(step)
        yield f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y}' y2='{y}' stroke='#ddd'/>"
        yield f"<text {FONT} x='{LEFT - 8}' y='{y + 4}' text-anchor='end'>{step}</text>"
    for seconds in _ticks(scale.seconds):
        yield f"<text {FONT} x='{scale.x(seconds)}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'>{seconds}</text>"
    yield f"<text {FONT} x='{(LEFT + WIDTH) / 2}' y='{HEIGHT - 10}' text-anchor='middle'>seconds</text>"
    yield f"<text {FONT} x='{LEFT - 8}' y='{TOP - 14}' text-anchor='end'>steps</text>"


def _ticks(highest: float) -> range:
    """Round numbers from 0 to the highest, not many."""
    sizes = (figure * 10**power for power in range(9) for figure in (1, 2, 5))
    return range(0, int(highest) + 1, next(size for size in sizes if highest / size <= MOST_TICKS))


def _line(scale: _Scale, series: Series, number: int) -> Iterator[str]:
    color = COLORS[number % len(COLORS)]
    last = max((step for _, step in series.points), default=0)
    missed = f", {len(series.missed)} more found nothing to hit" if series.missed else ""
    text = f"{CONTENDERS[series.contender].what}: {last} steps, {len(series.strikes)} faults{missed}"
    y = 16 + 15 * number
    yield f"<rect x='{LEFT}' y='{y - 9}' width='14' height='8' fill='{color}'/>"
    yield f"<text {FONT} x='{LEFT + 20}' y='{y}'>{text}</text>"
    for when, name in series.strikes:
        x = scale.x(when)
        yield (
            f"<line x1='{x}' x2='{x}' y1='{TOP}' y2='{HEIGHT - BOTTOM}' stroke='{color}' stroke-dasharray='2 4'>"
            f"<title>{name}</title></line>"
        )
    path = " ".join(f"{scale.x(when)},{scale.y(step)}" for when, step in _stairs(series))
    yield f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>"


def _stairs(series: Series) -> Iterator[tuple[float, float]]:
    """The points, with a level line where training stood still or went back."""
    yield 0.0, 0.0
    for (before, step), (when, later) in pairwise([(0.0, 0), *series.points]):
        if later <= step or when - before > 2.0:
            yield when, step
        yield when, later
    if series.points and series.points[-1][0] < series.seconds - 2.0:
        yield series.seconds, series.points[-1][1]
