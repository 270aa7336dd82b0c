"""A job in simulated time: the agents' real decisions and the real coordinator, over real bytes and simulated links."""
