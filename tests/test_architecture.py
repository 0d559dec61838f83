"""The rules of the tree itself: layers, purity, and the public surface."""

import ast
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import typing
from collections import Counter
from pathlib import Path

import pytest

import codedgrad
from codedgrad import codes

ROOT = Path(__file__).parents[1]


def _lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [command, "--no-cache", "--no-logo"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the source tree that a test may spoil."""
    shutil.copytree(ROOT / "src", tmp_path / "src")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_copied_tree_keeps_the_contracts(tree: Path) -> None:
    shown = _lint_imports(tree)
    assert shown.returncode == 0, shown.stdout


@pytest.mark.parametrize(
    ("module", "place"),
    [
        ("time", "codes/families/cyclic.py"),
        ("threading", "codes/families/cyclic.py"),
        ("random", "codes/families/cyclic.py"),
        ("time", "core/coordinator.py"),
        ("asyncio", "core/session.py"),
        ("socket", "core/history.py"),
        ("time", "schemes/fixed_code.py"),
        ("torch", "schemes/auto/plan.py"),
        ("time", "learning/estimators.py"),
        ("random", "uplink/fair.py"),
    ],
)
def test_a_clock_a_thread_or_a_global_seed_in_what_decides_breaks_a_contract(
    tree: Path, module: str, place: str
) -> None:
    spoilt = tree / "src/codedgrad" / place
    text = spoilt.read_text()
    line = "from __future__ import annotations\n"
    spoilt.write_text(text.replace(line, line + f"\nimport {module}\n"))
    shown = _lint_imports(tree)
    assert shown.returncode == 1
    layer = place.partition("/")[0]
    assert f"codedgrad.{layer} is not allowed to import {module}" in shown.stdout


@pytest.mark.parametrize(
    ("place", "above"),
    [
        ("codes/bounds/codes.py", "cli"),
        ("core/history.py", "learning"),
        ("core/plan.py", "schemes"),
        ("learning/estimators.py", "schemes"),
        ("uplink/link.py", "trace"),
        ("network.py", "sim"),
        ("sim/driver.py", "engines"),
        ("sim/machine.py", "scenario"),
        ("torch/report.py", "advise"),
    ],
)
def test_a_layer_that_imports_one_above_or_beside_it_breaks_a_contract(
    tree: Path, place: str, above: str
) -> None:
    spoilt = tree / "src/codedgrad" / place
    spoilt.write_text(spoilt.read_text() + f"\nimport codedgrad.{above}\n")
    shown = _lint_imports(tree)
    assert shown.returncode == 1
    layer = place.partition("/")[0].removesuffix(".py")
    said = f"codedgrad.{layer} is not allowed to import codedgrad.{above}"
    assert said in shown.stdout


@pytest.mark.parametrize(
    ("place", "above"),
    [("host/rows.py", "remote"), ("remote/port.py", "ray"), ("ray/actor.py", "mpi")],
)
def test_one_machine_that_knows_of_several_breaks_a_contract(
    tree: Path, place: str, above: str
) -> None:
    spoilt = tree / "src/codedgrad/engines" / place
    spoilt.write_text(spoilt.read_text() + f"\nimport codedgrad.engines.{above}\n")
    shown = _lint_imports(tree)
    assert shown.returncode == 1
    folder = place.partition("/")[0]
    said = f"engines.{folder} is not allowed to import codedgrad.engines.{above}"
    assert said in shown.stdout


def test_every_public_name_exists_and_is_documented() -> None:
    modules = [codedgrad]
    for found in pkgutil.walk_packages(codedgrad.__path__, "codedgrad."):
        if not found.name.endswith("__main__"):
            modules.append(importlib.import_module(found.name))
            # A module says by underscores what is public; only packages list it.
            assert found.ispkg or not hasattr(modules[-1], "__all__"), found.name
    for module in modules:
        assert module.__doc__, module.__name__
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if typing.get_origin(value) is not None:
                continue  # an alias of a type; what it means stands below it
            assert not callable(value) or value.__doc__, f"{module.__name__}.{name}"


def test_no_class_name_is_used_twice() -> None:
    """A name that means two things sends a reader to the wrong file."""
    where: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_no_folder_hides_the_architecture_by_its_length() -> None:
    folders = Counter(path.parent for path in (ROOT / "src").rglob("*.py"))
    assert {str(f.relative_to(ROOT)) for f, n in folders.items() if n > 20} == set()


def test_the_public_surface_of_codes() -> None:
    families = {
        "uncoded", "fractional", "cyclic", "clustered", "bernoulli", "stochastic",
        "vertex_graph", "edge_graph", "erasurehead", "heterogeneous", "proportional",
    }  # fmt: skip
    assert set(codes.FAMILIES) == families
    assert families <= set(codes.__all__)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("codedgrad", ("torch", "ray", "typer", "rich")),
        ("codedgrad.engines", ("torch", "scipy", "codedgrad.sim")),
        ("codedgrad.torch", ("scipy", "codedgrad.sim")),  # as workers do
    ],
)
def test_importing_codedgrad_imports_no_heavy_library(
    module: str, heavy: tuple[str, ...]
) -> None:
    check = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "[]\n", shown.stderr
