"""Checkpoints in memory with copies at other members, for scripts that only save to a path: an extension of the agent.

While workers run: `watcher` scans (`directory`, `rename_watch`), `recognition` decides which files are complete, by
`naming` and `formats`; `taking` decides which of them are one save, and `held` keeps it with its `manifest`, for as
long as `retention` says. `copies` gives it to peers, and `whole` tells them when older ones are not needed. Before a
round: `peers` is what a member offers, `round_start` the decision for all, `save_agreement` how they hear of it,
`restore` fetches and `placing` brings the files in place. `drain`, `drain_choice`, `durable` and `durable_tier` are the
copies on durable storage. `round_saves` is what the core calls.
"""
