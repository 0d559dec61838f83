"""The list of models: a new one is a new file and a line here."""

from __future__ import annotations

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

MODELS: dict[str, type] = {
    ShiftedExponential.kind: ShiftedExponential,
    Markov.kind: Markov,
    Replay.kind: Replay,
    Spikes.kind: Spikes,
    Sticky.kind: Sticky,
    Classes.kind: Classes,
    Speeds.kind: Speeds,
    Jitter.kind: Jitter,
    Pauses.kind: Pauses,
    Dead.kind: Dead,
    Slow.kind: Slow,
}
"""Every model by its name on the command line and in files."""
