"""What Python runs at the start of every process of a container with an injected agent: the folder is on PYTHONPATH.

`sitecustomize` calls `pytorchjob_members`, which makes the user's launchers and programs members of the job's rounds.
"""
