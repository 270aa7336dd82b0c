"""Runs without a job: `api` has `run_standalone` for other programs, `function` runs a function instead of a script.

May import `command` and everything below it. Only the package's own `__init__` imports it.
"""
