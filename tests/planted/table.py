"""All planted defects; each area has a module of its own."""

from collections.abc import Sequence

from tests.planted import Planted, decisions, ports, queues, saves, survivors

DEFECTS: Sequence[Planted] = [*decisions.DEFECTS, *ports.DEFECTS, *queues.DEFECTS, *saves.DEFECTS, *survivors.DEFECTS]
