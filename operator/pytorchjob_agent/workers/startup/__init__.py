"""A folder on the workers' PYTHONPATH, so that Python itself runs code of the agent before the script.

`python -m agent.runner script.py` is not used: this way the script keeps its command line, its `__main__` and its
spawned children. It also works for `-m`, `--no-python` and behind a shell script, and keeps torchrun's own arguments.
"""
