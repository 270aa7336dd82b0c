"""One module for each command: it reads the options, calls the rest of the package, and chooses the exit status.

`options` has what commands share, `outcome` the exit statuses. `cli` imports a command only when it is called.
"""
