"""CodedReduce: gradient codes on a tree. Reisizadeh et al., arXiv 1902.01981.

CR is `coded_reduce`, GC plain gradient coding with a star, UMW an uncoded star and RAR
a ring all-reduce.
"""

from codedgrad.papers.coded_reduce.failure import failure
from codedgrad.papers.coded_reduce.live import live
from codedgrad.papers.coded_reduce.load import load
from codedgrad.papers.coded_reduce.pauses import pauses
from codedgrad.papers.coded_reduce.ring import ring
from codedgrad.papers.coded_reduce.tail import tail
from codedgrad.papers.coded_reduce.times import times
from codedgrad.papers.paper import Paper, Recipe

__all__ = ["PAPER"]

PAPER = Paper(
    name="coded-reduce",
    title="CodedReduce: A Fast and Robust Framework for Gradient Aggregation in "
    "Distributed Learning",
    citation="Reisizadeh, Prakash, Pedarsani, Avestimehr; arXiv 1902.01981 (IEEE/ACM "
    "Trans. Networking 2021; Tree Gradient Coding, ISIT 2019).",
    says="workers on a tree, with a gradient code at every parent, take less load than "
    "plain gradient coding for the same fraction of late workers, and receive in "
    "parallel; on EC2 up to 27.2 times as fast as it, and 7.0 times as fast as a ring "
    "(18.8 times as fast as it in the earlier version).",
    ours="allocation, weights, run-time model, settings and all numbers: only the "
    "abstracts, a figure and the authors' released scripts could be read.",
    missing="the EC2 clusters (t2.micro, from memory), the tables of times by scheme, "
    "which s and S were used and which run gave 27.2 and 7.0; GISETTE. Runs are "
    "simulated; with --live, 12 processes of one machine learn a GISETTE-like set from "
    "real digits.",
    recipes=(
        Recipe("load", 0.3, load),
        Recipe("times", 5.0, times),
        Recipe("failure", 0.2, failure),
        Recipe("tail", 4.0, tail),
        Recipe("ring", 0.2, ring),
        Recipe("pauses", 4.0, pauses),
    ),
    live=(Recipe("live", 50.0, live),),
)
