"""Papers, made anew: setting, table and figure of each, and what was found.

One folder a paper, and one line in `PAPERS`.
"""

from codedgrad.papers.coded_reduce import PAPER as _CODED_REDUCE
from codedgrad.papers.gc_dc import PAPER as _GC_DC
from codedgrad.papers.heterogeneous import PAPER as _HETEROGENEOUS
from codedgrad.papers.paper import Effort, Exhibit, Paper, Recipe, Table
from codedgrad.papers.two_stage import PAPER as _TWO_STAGE

__all__ = ["PAPERS", "Effort", "Exhibit", "Paper", "Recipe", "Table"]

PAPERS = {
    paper.name: paper for paper in (_GC_DC, _HETEROGENEOUS, _CODED_REDUCE, _TWO_STAGE)
}
"""All papers, by the name that the command line knows them by."""
