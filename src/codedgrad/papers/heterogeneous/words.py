"""Words and axes that the exhibits share."""

from codedgrad.papers.drawing import Axis

WORKERS = 10
LOSS = Axis("loss above the least", "start = 1", is_log=True)
TASK = "least squares, 2000 samples, 20 unknowns, as many parts as workers"
LATE = "worker i answers after 1 + Exp(psi_i) s, whatever its load"
APART = "psi from 0.1 to 2, equally far apart"
