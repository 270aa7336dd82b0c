"""One look at a job: what was observed, and what the first policies made of it for those behind them."""

from dataclasses import dataclass

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan.outcome import Counts
from pytorchjob_operator.plan.replicas import Comparison
from pytorchjob_operator.plan.restart import Replacements


@dataclass(frozen=True, slots=True)
class Context:
    """`job` has its defaults filled in; `seen.job` is as the user wrote it."""

    seen: Observed
    job: PyTorchJob
    compared: Comparison
    counts: dict[ReplicaType, Counts]
    replacements: Replacements
