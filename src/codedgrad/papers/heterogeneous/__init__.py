"""Approximate gradient coding for unequal workers. Song, Choi, arXiv 2510.22539.

OSGC I and II are the paper's allocations `common` and `chain`, interval is ours. GD
hears everybody; SGC, EHD (ErasureHead), BGC, OD and IS-SGD are the paper's baselines.
"""

from codedgrad.papers.heterogeneous.adam import adam
from codedgrad.papers.heterogeneous.errors import equal, negative
from codedgrad.papers.heterogeneous.exact import exact
from codedgrad.papers.heterogeneous.live import live
from codedgrad.papers.heterogeneous.load import load
from codedgrad.papers.heterogeneous.steps import steps
from codedgrad.papers.paper import Paper, Recipe

__all__ = ["PAPER"]

PAPER = Paper(
    name="heterogeneous",
    title="Approximate Gradient Coding for Distributed Learning with Heterogeneous "
    "Stragglers",
    citation="Song, Choi; arXiv 2510.22539 (2025). Its codes are called OSGC here.",
    says="with workers that are late with known, unequal probabilities, there are "
    "unbiased codes of fixed weights with the least error at less than two copies; "
    "training comes close to GD, and is ahead of all baselines.",
    ours="the allocation interval and all decoders but the fixed one; the tasks. Its "
    "text was had second-hand and from the authors' published code.",
    missing="COCO with MobileNetV3 and RetinaNet, and the authors' 19 GPUs: least "
    "squares stands in, of which many runs can be had (with --live, pictures).",
    recipes=(
        Recipe("steps", 4.0, steps),
        Recipe("load", 6.0, load),
        Recipe("negative", 0.2, negative),
        Recipe("adam", 2.0, adam),
        Recipe("equal", 0.2, equal),
        Recipe("exact", 3.0, exact),
    ),
    live=(Recipe("live", 60.0, live),),
)
