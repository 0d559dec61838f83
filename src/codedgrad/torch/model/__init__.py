"""A PyTorch model as the root publishes it and as a worker computes with it.

`flat` says where its tensors lie in vectors, `state` and `attributes` what it has
beside parameters, `seal` sees that memory has changed. `workload` computes a part in a
worker, and `determinism` makes that depend on (seed, step, part) alone.
"""
