"""`pytorchjob run`: the same plan as in a cluster, applied to process groups on this machine, without Kubernetes.

`run_command` starts a run, `runner` is its loop, `node` replaces the kubelet, `addresses` DNS, and `screen` prints.
This package may import `plan`, `coordinator`, `observed` and `model`, not `app`, `control` or `kube`. Decisions about a
job belong in `plan`. The path of a signal: `signal_pipe`, `runner`, `node`, `replica_process`, `supervisor`.
"""
