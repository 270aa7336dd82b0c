"""Checkpoints that only the newest round of a job writes: `fence` decides, `files` and `distributed` save and load.

Two groups of one job may train for a while when one of them is cut off (docs/checkpoints.md). A guarded directory
accepts the saves of one of them.
"""
