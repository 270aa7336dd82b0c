"""The Python client: `PyTorchJobClient` with a cluster or this machine behind it, through one interface.

`api` has the verbs, `values` what they return, `backend` the interface, `on_cluster` and `on_machine` what is behind
it. `function` turns a Python function into a job. The verbs are those of Kubeflow's SDK.
"""
