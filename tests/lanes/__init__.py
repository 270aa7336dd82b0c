"""The runner behind `make test`: it runs the kinds of tests side by side and ends with one line over all of them.

`machine` finds out what this machine can do. `plan` decides which lanes run and what is left out. `running` runs the
lanes by `processes`. `events` is the plugin by which a lane's pytest reports each test, `results` reads these reports,
and `summary` makes the text. `costs` prints what a run's tests cost. Only `machine`, `processes`, `running`,
`costs` and `__main__` touch the outside.
"""
