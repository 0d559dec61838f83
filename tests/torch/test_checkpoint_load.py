"""Anybody reads a checkpoint, without the run that wrote it."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import codedgrad as cg
from codedgrad.errors import InvalidCheckpoint
from codedgrad.torch import Checkpoint, Checkpoints, Job, load
from codedgrad.torch.checkpoint import files as checkpoint
from codedgrad.trace.runs import MANIFEST, read_manifest

TOTAL = 5


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def job() -> Job:
    x = torch.randn(24, 3)
    return Job(net(), nn.MSELoss(), (x, x.sum(1, keepdim=True)), batch_size=8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, Any]:
    """The folder of a run, its model and its optimizer."""
    folder = tmp_path_factory.mktemp("run")
    with cg.torch.train(
        job, scheme="uncoded", workers=2, engine="here", run_dir=folder,
        checkpoints=Checkpoints(seconds=None, steps=2),
    ) as coded:  # fmt: skip
        optimizer = torch.optim.Adam(coded.model.parameters())
        coded.track(optimizer=optimizer)
        coded.knobs["beta"] = 0.5
        for _ in coded.steps(TOTAL):
            coded.backward()
            optimizer.step()
    return folder, coded.model, optimizer


@pytest.fixture
def run(trained: tuple[Path, nn.Module, Any], tmp_path: Path) -> Path:
    """A copy of the folder that a test may spoil."""
    return shutil.copytree(trained[0], tmp_path / "run")


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


def test_the_folder_of_a_run_has_all_that_its_newest_checkpoint_has(
    trained: tuple[Path, nn.Module, Any],
) -> None:
    folder, model, optimizer = trained
    loaded = load(folder)
    assert isinstance(loaded, Checkpoint)
    assert loaded.path == newest(folder)
    assert (loaded.step, loaded.epoch, loaded.knobs) == (TOTAL, 1, {"beta": 0.5})
    assert loaded.manifest == read_manifest(folder)
    assert {"torch", "numpy", "python"} <= loaded.generators.keys()
    fresh = net()
    fresh.load_state_dict(loaded.model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor)
    again = torch.optim.Adam(fresh.parameters())
    again.load_state_dict(loaded.tracked["optimizer"])
    assert again.state_dict()["state"][0]["step"] == TOTAL
    assert len(again.state) == len(optimizer.state)


@pytest.mark.parametrize("where", ["checkpoints", "checkpoints/step-00000004"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_of_checkpoints_and_a_file_will_do(
    run: Path, where: str, kind: type
) -> None:
    is_file = where != "checkpoints"
    path = run / (f"{where}.safetensors" if is_file else where)
    loaded = load(kind(path))
    assert loaded.step == (4 if is_file else TOTAL)
    assert loaded.manifest is not None


def test_a_file_that_was_taken_elsewhere_has_its_manifest(
    run: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(run)
    copied = shutil.copy(newest(run), tmp_path / "model.safetensors")
    (run / MANIFEST).unlink()
    assert load(copied).manifest == load(run).manifest == manifest


def test_a_checkpoint_from_before_it_had_a_manifest_may_have_none(
    run: Path, tmp_path: Path
) -> None:
    state = checkpoint.load(newest(run))
    del state["manifest"]
    checkpoint.save(newest(run), state)
    assert load(run).manifest == read_manifest(run)
    copied = shutil.copy(newest(run), tmp_path / "model.safetensors")
    assert load(copied).manifest is None


def test_a_manifest_in_the_checkpoint_goes_before_that_of_the_folder(
    run: Path, tmp_path: Path
) -> None:
    state = checkpoint.load(newest(run))
    manifest = msgspec.structs.replace(read_manifest(run), label="other")
    state["manifest"] = msgspec.to_builtins(manifest)
    checkpoint.save(newest(run), state)
    assert load(run).manifest == manifest
    state["manifest"] = {"scheme": 3}
    checkpoint.save(newest(run), state)
    with pytest.raises(InvalidCheckpoint, match="its manifest does not describe a run"):
        load(run)


def test_where_the_newest_is_damaged_it_is_the_one_before(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = newest(run)
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert load(run).step == 4
    assert "going back to the checkpoint of step 4" in caplog.text
    with pytest.raises(InvalidCheckpoint, match="damaged"):
        load(damaged)


def test_nothing_of_the_folder_is_changed(run: Path) -> None:
    def contents() -> dict[Path, tuple[bytes, int]]:
        files = [path for path in run.rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = contents()
    load(run)
    assert contents() == before


def test_what_is_no_checkpoint_is_refused_in_one_sentence(
    run: Path, tmp_path: Path
) -> None:
    advice = "give the file of a checkpoint, or the folder of a run"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidCheckpoint, match=f"has no checkpoint; {advice}"):
        load(tmp_path / "empty")
    with pytest.raises(InvalidCheckpoint, match=f"nowhere: does not exist; {advice}"):
        load(tmp_path / "nowhere")
    with pytest.raises(InvalidCheckpoint) as caught:
        load(tmp_path / "emtpy")
    meant = f"does not exist (did you mean {tmp_path / 'empty'}?); {advice}"
    assert str(caught.value) == f"{tmp_path / 'emtpy'}: {meant}"
    checkpoint.save(tmp_path / "other", {"step": 3})
    with pytest.raises(InvalidCheckpoint, match="of a run: it has no epoch"):
        load(tmp_path / "other")
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InvalidCheckpoint, match="none of its checkpoints can be read"):
        load(run)
