"""Static clusters (GC-SC). Ozfatura, Gunduz, Ulukus, arXiv 1903.01974."""

from codedgrad import codes
from codedgrad.codes.arguments import divisors, whole
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.coded import Coded, exact
from codedgrad.schemes.cyclic import well_conditioned


def clustered(
    workers: int,
    clusters: int,
    tolerance: int,
    *,
    rule: str = "decodable",
    pieces: int = 1,
    parts: int | None = None,
) -> Coded:
    """A cyclic code of its own in each of CLUSTERS groups; TOLERANCE late in each.

    Args:
        workers: Number of workers.
        clusters: How many clusters; must divide `workers`.
        tolerance: Late workers survived in every cluster.
        rule: `decodable`, or `threshold` (count in every cluster, as the papers do).
        pieces: Parts for each worker at the uncoded load.
        parts: Parts in all; None: `pieces` for each worker.
    """
    clusters = whole("clustered", "clusters", clusters, least=1, most=workers)
    if workers % clusters:
        raise InvalidScheme(
            f"clustered: clusters = {clusters} must divide workers = {workers}",
            f"clusters in {divisors(workers)}",
        )
    each = workers // clusters
    tolerance = whole("clustered", "tolerance", tolerance, least=0, most=each - 1)
    inner = well_conditioned(each, tolerance)
    options = {"clusters": clusters, "tolerance": tolerance}
    code = codes.clustered(inner, clusters)
    return exact("clustered", code, rule, pieces, parts, **options)
