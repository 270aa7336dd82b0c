"""spec.nprocPerNode and spec.runPolicy: a policy must be possible for this job."""

import re

from pytorchjob_operator.model.rules.rule import Rule

_NPROC = "^(auto|cpu|gpu|xpu|[1-9][0-9]{0,3})$"

POLICIES = (
    Rule(
        path="spec.nprocPerNode",
        field="",
        message="must be a number from 1 to 9999 as a string, or one of auto, cpu, gpu, xpu",
        cel=f"self.matches('{_NPROC}')",
        broken=lambda text: re.fullmatch(_NPROC, str(text)) is None,
    ),
    Rule(
        path="spec.runPolicy.schedulingPolicy.minResources.*",
        field="",
        message="must not be negative: give the amount that must be free, for example 8 or 4Gi",
        cel="!string(self).startsWith('-')",
        broken=lambda quantity: str(quantity).startswith("-"),
    ),
)
