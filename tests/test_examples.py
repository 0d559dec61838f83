"""Every example runs, and shows what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def shown(path: Path) -> list[str]:
    run = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=100
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.quick("train_in_virtual_time.py")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path) -> None:
    assert shown(path)


def test_training_in_virtual_time_shows_what_its_docstring_says() -> None:
    (path,) = (p for p in EXAMPLES if p.name == "train_in_virtual_time.py")
    _, uncoded, fractional, ignore = (line.split() for line in shown(path))
    assert uncoded[1:3] == fractional[1:3]  # the same gradients, the same model
    assert float(uncoded[3]) > 3 * float(fractional[3])
    assert float(ignore[2]) < float(uncoded[2]) - 0.05
