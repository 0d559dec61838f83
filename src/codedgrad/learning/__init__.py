"""What past steps say about the next one.

`estimators`: speed, reliability, how alike gradients are, and the filter whose laws are
given. `hidden_markov`: the filter that learns its laws. `lateness_by_load`: how often a
worker is late, by how much it is asked for.
"""
