"""All planted defects; each area has a module of its own."""

from collections.abc import Sequence

from tests.mutation.planted import Planted, saves

DEFECTS: Sequence[Planted] = [*saves.DEFECTS]
