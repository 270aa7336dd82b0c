"""Checks before the first rendezvous whether this image, machine and environment are fit for the job.

`read_facts` and `devices` collect the `facts`, `checks` finds problems, `policy` sets their severity. `gate` runs them
for `run`, `doctor` for the command of this name. May import `contract` and `system`.
"""
