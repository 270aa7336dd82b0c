"""`pytorchjob run`: the plan of the cluster, applied to process groups of this machine. No Kubernetes anywhere.

What is decided about a job is decided by `plan`; here is only what a kubelet, a name service and a terminal would do.
"""
