"""One small scheme of every kind: whatever is tested for all schemes starts here.

A new scheme gets a line, and with it every test of drivers, traces and faults.
"""

from __future__ import annotations

from codedgrad.schemes import (
    Auto,
    CodedReduce,
    CodedScheme,
    Dynamic,
    Heterogeneous,
    TwoStage,
    auto,
    bernoulli,
    clustered,
    coded_reduce,
    cyclic,
    dynamic,
    edge_graph,
    erasurehead,
    fractional,
    heterogeneous,
    ignore,
    proportional,
    stochastic,
    two_stage,
    uncoded,
    vertex_graph,
)

EXAMPLES: tuple[
    Auto | CodedScheme | CodedReduce | Dynamic | Heterogeneous | TwoStage, ...
] = (
    uncoded(4),
    uncoded(6, pieces=3),
    ignore(6, 4),
    ignore(6, budget=2.0, scaled=False),
    fractional(6, 1),
    fractional(6, 2, pieces=2),
    cyclic(5, 2),
    cyclic(6, 1, rule="threshold"),
    clustered(6, 2, 1),
    clustered(8, 2, 1, rule="threshold", pieces=2),
    proportional(6, 1, [1, 1, 2, 2, 3, 3]),
    dynamic(6, 2, 1),
    dynamic(8, 2, 1, state="late", storage="cluster", rule="threshold", pieces=2),
    heterogeneous(6, budget=2.0),
    heterogeneous(6, count=4, decoding="gram", correlation="learnt", pieces=2),
    heterogeneous(6, budget=2.0, straggle=[0.1, 0.2, 0.4, 0.5, 0.3, 0.1], cap=3.0),
    bernoulli(6, 2, budget=2.0, decoding="sum"),
    bernoulli(6, 2, count=4, decoding="optimal"),
    stochastic(6, 2, [0.1, 0.2, 0.3, 0.1, 0.2, 0.4], budget=3.0, placement="cyclic"),
    erasurehead(6, 2, count=3, decoding="sum"),
    erasurehead(6, 3, budget=1.0),
    vertex_graph(6, 3, budget=3.0),
    vertex_graph(6, 3, budget=3.0, decoding="one-step", seed=3),
    edge_graph(6, 3, count=3),
    coded_reduce(6, 2, 1),
    coded_reduce(6, 2, 1, parts=7, seats="reliable", rule="threshold"),
    two_stage(6),
    two_stage(6, 4, 2.0, 1, reuse=False, code="cyclic", start="numbered"),
    two_stage(6, give_up=2.0, copies=2, checkpoints=2, pieces=3),
    auto(5, 3),
    auto(6, 2, copies=3),
)
"""Exact and approximate, by count and by budget, in parts and in smaller pieces."""
