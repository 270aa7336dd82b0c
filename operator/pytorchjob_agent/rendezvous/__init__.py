"""The agent as a member of a job's rounds: coordinator client, peers, the round's store, the loop around the workers.

`run` starts a member, `loop` is its life around torch's agent, and `decide` chooses each next step, purely. Its way to
the coordinator: `membership`, `coordinator_client`, `session` (what it says again to a new leader), `inbox` (commands),
`waiting` (for the next round), `dial`. Its peers: `peer_heartbeats` and `agreement` through the `signed_store`,
`published` (what members publish for each other), `contact` and `api_server` (whether the group is cut off).
`extension` is the seam to all that a member can do besides. May import `stacks` and everything below it.
"""
