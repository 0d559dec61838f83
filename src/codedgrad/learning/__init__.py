"""What past steps say about the next one.

`estimators`: speed, reliability, how alike gradients are, and the filter whose laws are
given. `hidden_markov`: the filter that learns its laws. `lateness_by_load`: how often a
worker is late, by how much it is asked for.

`waiting`: what waiting for all workers would have taken, from `part_times` and
`message_times`; `load_estimates` are its figures while they may change, `savings` the
ones that are shown.
"""
