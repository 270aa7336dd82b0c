"""Starts mutmut, in its own environment, with a test runner that takes a tenth of the time.

Mutants that only change the wording of a text for people are left out: most tests do not pin it. A text without a space
is a name, and is mutated.
"""

from collections.abc import Iterable
from typing import Any

from mutmut.__main__ import cli
from mutmut.mutation import mutators

if __package__:
    from tests.mutation import runner
else:
    import runner  # type: ignore[import-not-found, no-redef]


def names_only(node: Any) -> Iterable[Any]:
    """Return the mutants of a name; none of a text with a space."""
    return () if " " in getattr(node, "value", "") else mutators.operator_string(node)


if __name__ == "__main__":
    mutators.mutation_operators[:] = [
        (kind, names_only if operator is mutators.operator_string else operator)
        for kind, operator in mutators.mutation_operators
    ]
    runner.install()
    cli()
