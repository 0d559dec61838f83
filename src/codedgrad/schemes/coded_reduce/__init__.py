"""CodedReduce: a tree of workers with a code at every parent.

`tree_plan` is the plan of a step, `seating` which worker sits where in the tree.
"""

from codedgrad.schemes.coded_reduce.scheme import CodedReduce, coded_reduce

__all__ = ["CodedReduce", "coded_reduce"]
