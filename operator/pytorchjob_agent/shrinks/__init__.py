"""The agent's side of workers that go on without a lost member (`workers/startup/pytorchjob_shrink`)."""
