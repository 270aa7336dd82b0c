"""`pytorchjob run`: the same plan as in a cluster, applied to process groups on this machine, without Kubernetes.

`run` puts a run together, `runner` is its loop, `node` replaces the kubelet, `addresses` DNS, `screen` is the terminal.
This package may import `plan`, `coordinator`, `observed` and `model`, not `app`, `control` or `kube`. Decisions about a
job belong in `plan`. The path of a signal: `signals`, `runner`, `node`, `replica_process`, `supervisor`.
"""
