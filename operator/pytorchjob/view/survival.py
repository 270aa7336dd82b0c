"""What follows from the loss of a pod where `spec.agent.survive` is Auto: the codes of the status in words. Pure."""

from typing import Any

from pytorchjob_agent.contract.reasons import ShrinkState

_WHY = {
    ShrinkState.NOT_READY: "the workers have not begun to train",
    ShrinkState.TOO_FEW: "fewer pods than minReplicas would be left",
    ShrinkState.ENDING: "the round is about to end",
    ShrinkState.SEVERAL: "a pod has lost its connection",
    ShrinkState.TORCH: "the image's torch is older than 2.15",
    ShrinkState.BACKEND: "the default process group is not gloo's",
    ShrinkState.GROUPS: "the script has process groups besides the default one",
    ShrinkState.HOOK: "the script has registered a communication hook",
    ShrinkState.MODEL: "the model has a static graph, uneven batches or mixed precision",
    ShrinkState.COMPILED: "torch.compile has traced through DistributedDataParallel",
    ShrinkState.OPERATION: "ranks were in operations that cannot be repeated",
    ShrinkState.UNEQUAL: "the parameters of the ranks differ",
}


def words(code: Any) -> str:
    """Return what would happen if a pod were lost now; empty without a code."""
    if code == ShrinkState.READY:
        return "the others go on without a lost pod"
    if not isinstance(code, str) or not code:
        return ""
    why = next((text for state, text in _WHY.items() if state == code), code)
    return f"all workers restart after a loss: {why}"
