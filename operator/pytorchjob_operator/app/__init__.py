"""The operator's process: it connects kopf, the caches, the work queue, the coordinator and the HTTP server.

`process` is the life of the process (start, health, SIGTERM), `operator` its parts, `job_watch` and `child_watch` what
feeds the caches. This package may import everything of the operator but `local`. Nothing imports it but `__main__`, and
no decision about a job belongs here.
"""
