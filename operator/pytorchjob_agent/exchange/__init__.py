"""How the members of a round send each other files: what they prove, the lines, the port, and safe paths.

`round_keys` is what they trust each other by, `wire` a connection, `server` the port. `file_list` is what describes
files, and `files` opens them. Extensions such as `saves` and `caches` use it. May import `contract` and `system`.
"""
