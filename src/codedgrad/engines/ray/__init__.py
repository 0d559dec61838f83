"""The Ray engine: an actor on every node, as the agent of a host."""
