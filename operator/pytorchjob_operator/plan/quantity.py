"""Kubernetes quantities as exact numbers: `500m`, `2`, `4Gi`, `1e3` (apimachinery's resource.Quantity).

An unreadable quantity becomes None: the API server has checked pod templates before, and no plan may fail here.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Context, Decimal

_EXACT = Context(prec=400)
"""Enough digits for sums of the largest and the smallest numbers that can be read, so that nothing is ever rounded."""
_NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})"
_FORM = re.compile(rf"({_NUMBER})(?:([eE][+-]?[0-9]{{1,2}})|([KMGTPE]i|[numkMGTPE]))?")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SUFFIXES = {
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(_BINARY, 1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(_DECIMAL, -3)},
}


def parse(value: object) -> Decimal | None:
    """Return the number of a quantity; None for a value that is not a quantity."""
    match = _FORM.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return _EXACT.multiply(Decimal(number + (exponent or "")), _SUFFIXES[suffix or ""])


def total(parts: Iterable[tuple[int, Mapping[str, object]]]) -> dict[str, Decimal]:
    """Add up resource lists, each times its number; values that are not quantities do not count."""
    found: dict[str, Decimal] = {}
    for times, resources in parts:
        for name, value in resources.items():
            number = parse(value)
            if number is not None:
                found[name] = _EXACT.fma(number, times, found.get(name, Decimal(0)))
    return found


def render(number: Decimal) -> str:
    """Return the shortest form without a binary suffix; rounded up to thousandths."""
    milli = _EXACT.multiply(number, Decimal(1000)).to_integral_value(ROUND_CEILING)
    whole, rest = _EXACT.divmod(milli, Decimal(1000))
    return f"{milli:f}m" if rest else f"{whole:f}"
