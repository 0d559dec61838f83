"""The Ray engine: an actor for every worker."""
