"""Engines with workers on several machines: all but what starts the processes there.

`engine` is the root's side of it and `agent` the other; a `launcher` starts agents, and
`world` is that of MPI and torchrun, whose processes serve one run after the other. The
root meets agents in its `lobby`, through a `door` (`handshake`), and speaks to them
over a `connection`, in `messages`. `far_host` is its view of one host, and `port` lets
sums come in. `machine` says which machine this is, and where others reach it.
"""
