"""The list of models: a new one is a new file and a line here."""

from __future__ import annotations

from codedgrad.delays.classes import Classes
from codedgrad.delays.dead import Dead
from codedgrad.delays.jitter import Jitter
from codedgrad.delays.markov import Markov
from codedgrad.delays.pauses import Pauses
from codedgrad.delays.replay import Replay
from codedgrad.delays.shifted_exponential import ShiftedExponential
from codedgrad.delays.speeds import Speeds
from codedgrad.delays.spikes import Spikes
from codedgrad.delays.sticky import Sticky

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
}
"""Every model by its name on the command line and in files."""
