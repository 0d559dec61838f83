"""The families of codes: one file each, listed in `codedgrad.codes.FAMILIES`.

`circulant` and `null_space` choose the coefficients of cyclic codes; `allocation` cuts
the shares of workers that are late with different probabilities.
"""
