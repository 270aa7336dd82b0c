"""Which members of a job train together: rounds, ranks, restarts. Pure; the coordinator is the shell around it."""

from pytorchjob_operator.rounds.decide import decide as decide
