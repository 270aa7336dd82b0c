"""Merges the logs of a job's pods: no line is lost and none comes twice, whatever restarts or breaks.

`lines`, `resume`, `merge`, `ranks` and `containers` are pure. `reader` reads one container, `funnel` joins the threads
of all readers, and `session` follows a job to its end.
"""
