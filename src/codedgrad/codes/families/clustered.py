"""Static clusters (GC-SC): the same small code over and over.

Ozfatura, Gunduz, Ulukus, arXiv 1903.01974.
"""

from __future__ import annotations

import numpy as np

from codedgrad.codes.arguments import whole
from codedgrad.codes.code import Code, a_code
from codedgrad.codes.decoders import PerBlock
from codedgrad.codes.sparse import repeated


def clustered(inner: Code, clusters: int) -> Code:
    r"""Repeat `inner` along the diagonal, once for every cluster.

    Cluster $p$ owns the workers, messages and parts that follow those of cluster
    $p - 1$, and is decoded by itself: with $s$ the tolerance of `inner`, any $s$
    late workers are survived, and up to $s$ in every cluster.

    Args:
        inner: The code of one cluster, of any family.
        clusters: How many clusters.

    Example:
        >>> from codedgrad.codes import cyclic, decode
        >>> code = clustered(cyclic(workers=4, tolerance=1), clusters=5)
        >>> code.workers, code.tolerance, code.load
        (20, 1, 2)
        >>> one_late_in_every_cluster = [m for m in range(20) if m % 4 != 0]
        >>> decode(code, one_late_in_every_cluster).is_exact
        True
    """
    a_code("clustered", "inner", inner)
    clusters = whole("clustered", "clusters", clusters, least=1)
    shift = np.repeat(np.arange(clusters) * inner.workers, inner.messages)
    return Code(
        name=f"clustered({inner}, clusters={clusters})",
        B=repeated(inner.B, clusters),
        tolerance=inner.tolerance,
        decoder=PerBlock(inner.decoder, clusters),
        owner=tuple((np.tile(inner.owner, clusters) + shift).tolist()),
        inner=inner,
    )
