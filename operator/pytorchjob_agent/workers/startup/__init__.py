"""A folder on the workers' PYTHONPATH, so that Python itself runs a line of ours before the script.

Why so, and not `python -m our.runner script.py`: the script keeps its command line, its `__main__` and its spawned
children; it works for `-m`, for `--no-python` and behind a shell script too; torchrun's own arguments stay untouched.
"""
