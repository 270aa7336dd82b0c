"""What the agent sees of a script that reports nothing: its progress, its saves and loads. An extension.

`observed_progress` reads what a library posts to `status_server`, or what a worker prints (`progress_lines`).
`observed_saves` reads what each worker measures of its own saves. `round_observers` is what the core calls.
"""
