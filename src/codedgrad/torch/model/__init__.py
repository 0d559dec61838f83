"""A PyTorch model as the root publishes it and as a worker computes with it."""
