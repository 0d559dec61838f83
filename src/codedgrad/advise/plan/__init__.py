"""`codedgrad plan`: which scheme for this cluster, or none.

`sources` reads what is known of the cluster, from traces by `worker_seconds`. `planner`
lets `search` score the `candidates` on it; `breakeven` says when a code can pay at all.
`sentences` are for people, `scenario` is for `codedgrad simulate`.
"""
