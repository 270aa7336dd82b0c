"""The operator of kubeflow.org/v1 PyTorchJob: a pure plan, and thin shells around it."""

from pytorchjob_agent import __version__

__all__ = ["__version__"]
