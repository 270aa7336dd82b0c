"""How long training stands still after a fault: ours beside torchrun, on the cluster of `make cluster`."""
