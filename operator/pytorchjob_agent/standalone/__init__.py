"""Runs that need no job: `run_standalone` for other programs, and functions in place of scripts.

May import `command` and everything below it; nothing imports it but the package's own front page.
"""
