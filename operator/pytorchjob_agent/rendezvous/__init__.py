"""The agent as a member of a job's rounds: coordinator client, peers, the round's store, the loop around the workers.

May import `hangs` and everything below it.
"""
