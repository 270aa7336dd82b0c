"""How much of a worker's time is its own work: the agent's side of the search for slow ranks. An extension.

`workers/startup/pytorchjob_own_time` measures it in each worker, `own_times` reads it.
"""
