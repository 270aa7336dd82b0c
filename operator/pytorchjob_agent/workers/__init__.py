"""How worker processes start, cold or warm, and how their output and their failures are read.

Warm starts: `start_choice` decides, `warm` applies it to torch, `fork_client` talks to `fork_server`, which runs a
`forked_program`. `startup` is what Python runs in each worker before the script. May import `contract`, `system` and
`torch_compat`.
"""
