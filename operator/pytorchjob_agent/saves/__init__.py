"""Checkpoints in memory with copies at other members, for scripts that only save to a path."""
