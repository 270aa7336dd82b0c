"""All planted defects; each area has a module of its own."""

from collections.abc import Sequence

from tests.planted import Planted, ports, saves

DEFECTS: Sequence[Planted] = [*ports.DEFECTS, *saves.DEFECTS]
