"""The agent as a member of a job's rounds: it talks to the coordinator, keeps the round's store, runs the workers."""
