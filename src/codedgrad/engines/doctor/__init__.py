"""Which engines work on this machine, what is missing, and how to get it."""
