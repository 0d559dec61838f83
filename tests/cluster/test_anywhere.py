"""One script, unchanged but for the engine's name, trains the same model everywhere."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codedgrad.schemes import SCHEMES, build

SCRIPT = Path(__file__).parents[2] / "examples" / "anywhere.py"
STARS = (
    "uncoded",
    "fractional(1)",
    "cyclic(1)",
    "clustered(2, 1)",
    "proportional(1, speeds=[1, 1, 2, 2])",
    "dynamic(2, 1)",
    "two_stage",
    "auto",
)
TREE = "coded_reduce(2, 1)"
SAME_BITS = ("uncoded", "fractional(1)")


def command(engine: str) -> list[str]:
    """Return what runs a script with an engine; on three hosts, if it can."""
    if engine == "mpi":
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        under = [mpirun, "--oversubscribe", *root, "-n", "3"]
        return [*under, sys.executable, "-m", "codedgrad.engines.mpi"]
    if engine == "torchrun":
        torchrun = ["-m", "torch.distributed.run", "--standalone"]
        return [sys.executable, *torchrun, "--nproc-per-node=3"]
    return [sys.executable]


def trained(engine: str, folder: Path) -> dict[str, np.ndarray]:
    """Return the parameters by scheme, after six steps of the example."""
    found = {}
    for workers, schemes in ((4, STARS), (6, (TREE,))):
        save = folder / f"{engine}-{workers}.npz"
        words = ["--engine", engine, "--workers", str(workers), "--steps", "6"]
        words += ["--save", str(save), *schemes]
        run = subprocess.run(
            [*command(engine), str(SCRIPT), *words],
            capture_output=True,
            text=True,
            env={**os.environ, "CODEDGRAD_HOSTS": "processes"},
        )
        assert run.returncode == 0, run.stdout + run.stderr
        printed = [line.split()[0] for line in run.stdout.splitlines()]
        assert len(printed) == 1 + len(schemes)  # once, whatever runs the script
        assert printed.count("scheme") == 1
        found.update(np.load(save))
    return found


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return trained("local", tmp_path_factory.mktemp("local"))


def test_all_exact_schemes_are_among_them() -> None:
    built = [build(name, 4) for name in STARS]
    assert all(scheme.exact for scheme in built)
    named = {name.partition("(")[0] for name in (*STARS, TREE)}
    inexact = {"ignore", "heterogeneous", "bernoulli", "stochastic", "erasurehead"}
    assert named == set(SCHEMES) - inexact - {"vertex_graph", "edge_graph"}


@pytest.mark.timeout(600)  # where the machine is busy otherwise
@pytest.mark.parametrize(
    ("engine", "needs"), [("ray", "ray"), ("mpi", "mpi4py"), ("torchrun", "torch")]
)
def test_the_model_is_the_same_on_every_engine(
    engine: str, needs: str, local: dict[str, np.ndarray], tmp_path: Path
) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed: pip install 'codedgrad[{engine}]'")
    found = trained(engine, tmp_path)
    assert found.keys() == local.keys() == {*STARS, TREE}
    for name, parameters in found.items():
        np.testing.assert_allclose(parameters, local[name], rtol=1e-10, atol=1e-12)
        if name in SAME_BITS:
            np.testing.assert_array_equal(parameters, local[name])
