"""Static clusters (GC-SC). Ozfatura, Gunduz, Ulukus, arXiv 1903.01974."""

from codedgrad import codes
from codedgrad.codes.arguments import divisors, whole
from codedgrad.errors import InvalidScheme
from codedgrad.schemes.coded import Coded, exact, title
from codedgrad.schemes.cyclic import well_conditioned


def clustered(
    workers: int,
    clusters: int,
    tolerance: int,
    *,
    rule: str = "decodable",
    pieces: int = 1,
) -> Coded:
    """A cyclic code of its own in each of CLUSTERS groups; TOLERANCE late in each.

    Args:
        workers: Number of workers.
        clusters: How many clusters; must divide `workers`.
        tolerance: Late workers survived in every cluster.
        rule: `decodable`, or `threshold` (count in every cluster, as the papers do).
        pieces: Parts for each worker at the uncoded load.
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
    name = title("clustered", **options, rule=rule, pieces=pieces)
    return exact(name, codes.clustered(inner, clusters), rule, pieces)
