"""Checkpoints and the folder of a run: written whole or not at all, without pickle.

`state_tree` and `packed` turn a state into bytes, `files` keeps one file a step, `load`
reads one without its run. `writer` writes while the loop goes on, into a `run_folder`;
`untracked` warns of optimizers that no checkpoint would have.
"""
