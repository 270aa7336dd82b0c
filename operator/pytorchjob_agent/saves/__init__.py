"""Checkpoints in memory with copies at other members, for scripts that only save to a path.

While workers run: `watcher` scans (`directory`, `rename_watch`), `recognition` decides which files are complete, by
`naming` and `formats`; `taking` decides which of them are one save, and `held` keeps it with its `manifest`. `server`,
`wire`, `copies` and `round_keys` exchange saves with peers. Before a round: `peers` is what a member offers,
`round_start` the decision for all, `restore` fetches and `placing` brings the files in place. `drain`, `drain_choice`,
`durable` and `durable_tier` are the copies on durable storage.
"""
