"""Engines whose workers are on other machines: all but the transport itself.

`engine` is the root's side and `agent` the far one; `transport` is what Ray and MPI
implement. `far_rows` books sums that are elsewhere, `port` and `pace` let them in, and
`bell` wakes processes of one machine.
"""
