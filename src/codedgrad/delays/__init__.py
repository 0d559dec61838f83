"""How long a worker takes: laws, changes to them, recordings, fitting.

A law draws `Times`; `Chain` puts changes on top; `build` makes the same from plain
tables, as a TOML file has them. `read_matrix` reads recorded seconds, `Replay` plays
them, `fit` finds a law for them. `rehearse` makes times for real workers. The models
are in `MODELS`.
"""

from codedgrad.delays.build import build
from codedgrad.delays.bundled import traces
from codedgrad.delays.fit import Fit, fit
from codedgrad.delays.matrix import Matrix, read_matrix, write_matrix
from codedgrad.delays.models import MODELS
from codedgrad.delays.models.chain import Chain
from codedgrad.delays.models.classes import Classes
from codedgrad.delays.models.dead import Dead
from codedgrad.delays.models.jitter import Jitter
from codedgrad.delays.models.markov import Markov
from codedgrad.delays.models.pauses import Pauses
from codedgrad.delays.models.replay import Replay
from codedgrad.delays.models.shifted_exponential import ShiftedExponential
from codedgrad.delays.models.slow import Slow
from codedgrad.delays.models.speeds import Speeds
from codedgrad.delays.models.spikes import Spikes
from codedgrad.delays.models.sticky import Sticky
from codedgrad.delays.rehearse import Rehearsed, rehearse
from codedgrad.delays.times import GRID, Change, Delays, Times, Truth, draw, on_grid

__all__ = [
    "GRID",
    "MODELS",
    "Chain",
    "Change",
    "Classes",
    "Dead",
    "Delays",
    "Fit",
    "Jitter",
    "Markov",
    "Matrix",
    "Pauses",
    "Rehearsed",
    "Replay",
    "ShiftedExponential",
    "Slow",
    "Speeds",
    "Spikes",
    "Sticky",
    "Times",
    "Truth",
    "build",
    "draw",
    "fit",
    "on_grid",
    "read_matrix",
    "rehearse",
    "traces",
    "write_matrix",
]
