"""GC-DC: clusters formed anew in every step from which workers were slow.

`grid` says which clusters a worker may join, `straggler_states` which workers will be
slow, `cluster_assignment` which worker therefore joins which cluster.
"""

from codedgrad.schemes.dynamic.scheme import Dynamic, dynamic

__all__ = ["Dynamic", "dynamic"]
