"""Gradient coding with dynamic clustering. Buyukates et al., arXiv 2103.01206.

GC is `cyclic`, GC-SC static clusters, GC-DC clusters formed anew in every step. The
lower bound waits as if whoever turns out slow had been spread perfectly: no clusters
that count can be faster.
"""

from codedgrad.papers.gc_dc.clusters import memory, refined, stragglers
from codedgrad.papers.gc_dc.live import live
from codedgrad.papers.gc_dc.times import completion, speeds
from codedgrad.papers.paper import Paper, Recipe

__all__ = ["PAPER"]

PAPER = Paper(
    name="gc-dc",
    title="Gradient Coding with Dynamic Clustering for Straggler-Tolerant Distributed "
    "Learning",
    citation="Buyukates, Ozfatura, Ulukus, Gunduz; arXiv 2103.01206, and 2011.01922 "
    "(ICC 2021).",
    says="clusters formed anew in every step from past straggling, so that stragglers "
    "are spread evenly, take less time a step than gradient coding, among equal and "
    "unequal workers, with no more messages; it rests on straggling that lasts.",
    ours="placement, seating rules, settings, the filter and all numbers: only the "
    "abstracts could be read.",
    missing="the paper's parameters, figures and code. It has no machines: its results "
    "are simulated, as are these (real processes with --live).",
    recipes=(
        Recipe("completion", 18.0, completion),
        Recipe("speeds", 9.0, speeds),
        Recipe("stragglers", 2.0, stragglers),
        Recipe("refined", 3.0, refined),
        Recipe("memory", 16.0, memory),
    ),
    live=(Recipe("live", 60.0, live),),
)
