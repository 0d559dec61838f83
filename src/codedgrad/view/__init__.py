"""Read-only consumers of results: what they say, as tables, plots, pages, sentences.

Simulations are `compared`; runs, traces and recordings are read as subjects, of which
`write_page` makes a report.
"""

from codedgrad.view.comparison import ComparisonRow, compared, verdict
from codedgrad.view.distances import Distance, about_bounds
from codedgrad.view.live import LiveView
from codedgrad.view.reading import read_subject, read_subjects
from codedgrad.view.report import check_page, default_page, save_page, write_page
from codedgrad.view.scalars import check_scalars, write_scalars
from codedgrad.view.simulation import check_plot, facts, plot, table
from codedgrad.view.subjects import Fate, Subject
from codedgrad.view.summaries import Summary, summary, summary_table
from codedgrad.view.timeline import check_timeline, write_timeline
from codedgrad.view.verdicts import caveats, verdict_on

__all__ = [
    "ComparisonRow",
    "Distance",
    "Fate",
    "LiveView",
    "Subject",
    "Summary",
    "about_bounds",
    "caveats",
    "check_page",
    "check_plot",
    "check_scalars",
    "check_timeline",
    "compared",
    "default_page",
    "facts",
    "plot",
    "read_subject",
    "read_subjects",
    "save_page",
    "summary",
    "summary_table",
    "table",
    "verdict",
    "verdict_on",
    "write_page",
    "write_scalars",
    "write_timeline",
]
