"""Two stages and a fair uplink. Wang et al., ICDCS 2023, arXiv 2205.07939.

A first stage without a code, a second one with a code for what is not done. Fresh:
helpers were held back; re-use: those who have finished help.
"""

from codedgrad.papers.paper import Paper, Recipe
from codedgrad.papers.two_stage.accuracy import accuracy
from codedgrad.papers.two_stage.backlog import backlog
from codedgrad.papers.two_stage.decoding import decoding
from codedgrad.papers.two_stage.link import fairness, messages
from codedgrad.papers.two_stage.live import live
from codedgrad.papers.two_stage.quiet import quiet
from codedgrad.papers.two_stage.shares import shares
from codedgrad.papers.two_stage.times import times
from codedgrad.papers.two_stage.use import use

__all__ = ["PAPER"]

PAPER = Paper(
    name="two-stage",
    title="Two-Stage Coded Distributed Learning: A Dynamic Partial Gradient Coding "
    "Perspective",
    citation="Wang, Zhong, Ning, Yang, Yang, Tang, Liu; ICDCS 2023; arXiv 2205.07939 "
    "(Two-Stage Coded Federated Edge Learning).",
    says="some workers start without a code; after a set time others are started for "
    "what is not done, with coefficients from past times; a perturbed Lyapunov "
    "function shares the uplink. Less redundancy, light decoding, better accuracy and "
    "resource utilisation.",
    ours="everything that makes this an algorithm: lists, checkpoint, code, planner, "
    "re-use of finishers, queues and weights of the uplink; settings and all numbers. "
    "Only the abstracts of two versions could be read.",
    missing="its text, figures, data sets, parameters and code: no number of it could "
    "be compared. MNIST, CIFAR and its baselines (uncoded, cyclic, fractional) are "
    "from memory; digits of scikit-learn stand in (with --live, Fashion-MNIST where "
    "it is installed).",
    recipes=(
        Recipe("times", 1.0, times),
        Recipe("accuracy", 6.0, accuracy),
        Recipe("use", 6.0, use),
        Recipe("decoding", 2.5, decoding),
        Recipe("backlog", 1.5, backlog),
        Recipe("shares", 2.5, shares),
        Recipe("quiet", 1.0, quiet),
        Recipe("messages", 4.0, messages),
        Recipe("fairness", 5.0, fairness),
    ),
    live=(Recipe("live", 90.0, live),),
)
