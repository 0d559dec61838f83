"""Which scheme for this cluster, and who is slow.

`open_evidence` reads a path: a run, a trace, a recording or a probe.
`plan` compares what may help on what is known of a cluster (`source_from`) and
`advice_on` says it in words; `probe` measures a cluster beforehand. `who_is_slow` finds
who is slow in a run, a trace or a recording (`read_paces`), a `Watcher` while it runs.
"""

from codedgrad.advise.evidence import Evidence, open_evidence
from codedgrad.advise.plan.planner import Asked, Planned, plan
from codedgrad.advise.plan.sentences import Advice, advice_on
from codedgrad.advise.plan.sources import Source, source_from
from codedgrad.advise.probe.probe import Probe, probe, read_probe, write_probe
from codedgrad.advise.slow.sentences import said
from codedgrad.advise.slow.slowness import who_is_slow
from codedgrad.advise.slow.times import (
    SecondsByStep,
    paces_of_matrix,
    paces_of_trace,
    read_paces,
)
from codedgrad.advise.slow.verdicts import Kind, Slowness, Standing, Verdict
from codedgrad.advise.slow.watcher import Watcher

__all__ = [
    "Advice",
    "Asked",
    "Evidence",
    "Kind",
    "Planned",
    "Probe",
    "SecondsByStep",
    "Slowness",
    "Source",
    "Standing",
    "Verdict",
    "Watcher",
    "advice_on",
    "open_evidence",
    "paces_of_matrix",
    "paces_of_trace",
    "plan",
    "probe",
    "read_paces",
    "read_probe",
    "said",
    "source_from",
    "who_is_slow",
    "write_probe",
]
