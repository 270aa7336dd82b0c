"""How fast and how small: each figure beside its yardstick, both taken in the same run.

`python -m benchmarks` runs all of them and rewrites the table of README.md. Nothing here passes or fails.
"""
