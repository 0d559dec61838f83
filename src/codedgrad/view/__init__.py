"""Read-only consumers of results: what they say, as tables, plots and sentences."""

from codedgrad.view.comparison import Row, compared, verdict
from codedgrad.view.simulation import check_plot, facts, plot, table

__all__ = ["Row", "check_plot", "compared", "facts", "plot", "table", "verdict"]
