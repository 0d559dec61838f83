"""Checkpoints on disk: whole or not at all, hostile files, killed writers."""

import errno
import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.errors import InvalidCheckpoint, InvalidOptions
from codedgrad.torch.checkpoint import packed
from codedgrad.torch.checkpoint import state_tree as tree
from codedgrad.torch.checkpoint.files import (
    Shelf,
    generators,
    load,
    restore_generators,
    save,
)
from codedgrad.torch.model.seal import raw

KIND = "codedgrad checkpoint"


def state_of(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "weights": torch.full((1000,), float(step)),
        "nested": {1: (2,)},
    }


def is_state_of(state: dict[str, Any], step: int) -> bool:
    wanted = state_of(step)
    weights = torch.equal(state.pop("weights"), wanted.pop("weights"))
    return weights and state == wanted


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# A file


def test_a_state_comes_back_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(path, state_of(3))
    assert is_state_of(load(path), 3)
    assert files(tmp_path) == ["a"]


def test_an_empty_state_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "a", {})
    assert load(tmp_path / "a") == {}


def test_a_dtype_that_only_files_hold_comes_back(tmp_path: Path) -> None:
    tensor = torch.tensor([1.0, 2.0]).to(torch.float8_e8m0fnu)
    save(tmp_path / "a", {"t": tensor})
    back = load(tmp_path / "a")["t"]
    assert back.dtype == tensor.dtype
    assert back.float().tolist() == [1.0, 2.0]


def test_a_checkpoint_is_a_plain_safetensors_file(tmp_path: Path) -> None:
    save(tmp_path / "a", state_of(3))
    [(name, weights)] = safetensors.torch.load_file(tmp_path / "a").items()
    assert name == "weights"
    assert torch.equal(weights, torch.full((1000,), 3.0))


@pytest.mark.parametrize("dtype", packed._CODES, ids=str)
def test_the_library_reads_every_type_as_it_was(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    ones = torch.arange(24).remainder(2).reshape(2, 3, 4)
    tensors = {
        "many": ones.to(dtype),
        "one": ones[0, 0, 1].to(dtype),
        "none": torch.empty(0, 3).to(dtype),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "wide": torch.arange(2),
    }
    save(tmp_path / "a", tensors)
    with safetensors.safe_open(tmp_path / "a", "pt") as file:
        for name, tensor in tensors.items():
            found = file.get_tensor(name)
            assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
            assert raw(found).tobytes() == raw(tensor).tobytes()


def test_every_type_that_a_state_may_have_has_a_name_in_the_format() -> None:
    assert {*packed._CODES, torch.complex128} == tree._HELD - {None}


def test_a_checkpoint_without_a_digest_is_read(tmp_path: Path) -> None:
    tensors = {"t": torch.ones(2)}
    metadata = metadata_of({"a": ["tensor", "t"]})
    safetensors.torch.save_file(tensors, tmp_path / "a", metadata)
    assert load(tmp_path / "a")["a"].tolist() == [1.0, 1.0]


def test_a_checkpoint_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save(tmp_path / "a", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_what_is_loaded_does_not_depend_on_the_file(tmp_path: Path) -> None:
    save(tmp_path / "a", state_of(3))
    state = load(tmp_path / "a")
    with (tmp_path / "a").open("r+b") as file:
        file.truncate(0)
    state["weights"] += 1
    assert torch.equal(state["weights"], torch.full((1000,), 4.0))
    assert state["weights"].data_ptr() % 64 == 0


def test_a_state_that_cannot_be_kept_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(path, state_of(3))
    with pytest.raises(InvalidCheckpoint) as caught:
        save(path, {"optimizer": [print]})
    assert str(caught.value) == (
        f"{path}: optimizer[0] is a builtin_function_or_method; checkpoints hold "
        f"numbers, text and tensors only; leave it out of state_dict()"
    )
    assert is_state_of(load(path), 3)
    assert files(tmp_path) == ["a"]


def test_too_much_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "_LONGEST", 100)
    with pytest.raises(InvalidCheckpoint, match="over 100; keep long lists as tensors"):
        save(tmp_path / "a", {"a": list(range(100))})
    assert files(tmp_path) == []


@pytest.mark.parametrize("moment", ["replace", "fsync"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "a"
    save(path, state_of(3))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, moment, full)
    with pytest.raises(InvalidCheckpoint, match=r"No space left on device; make space"):
        save(path, state_of(4))
    monkeypatch.undo()
    assert is_state_of(load(path), 3)
    assert files(tmp_path) == ["a"]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"cannot be written: .*No such file"):
        save(tmp_path / "none" / "a", {})


# Files that will not do


def written(path: Path, metadata: dict[str, str] | None) -> Path:
    safetensors.torch.save_file({"t": torch.ones(2)}, path, metadata)
    return path


def metadata_of(structure: Any, **more: str) -> dict[str, str]:
    text = structure if isinstance(structure, str) else json.dumps(structure)
    return {"kind": KIND, "version": "2", "structure": text} | more


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        (None, "its kind is None"),
        ({"kind": "model"}, "its kind is 'model'"),
        ({"kind": KIND}, "has version ''"),
        (metadata_of({}, version="3"), "version '3', this is 2; read it with a newer"),
        (
            metadata_of({}, version="1"),
            "version '1', this is 2: its run took the samples in another order; "
            "finish it with the codedgrad that began it, or begin anew in another",
        ),
        (metadata_of({}, version="9" * 9999), "read it with a newer"),
        (metadata_of({}, version="x"), "version 'x', this is 2$"),
        ({"kind": KIND, "version": "2"}, "its structure is not JSON"),
        (metadata_of("{"), "its structure is not JSON"),
        (metadata_of("[" * 100_000), "its structure is not JSON"),
        (metadata_of('{"a":' * 100_000), "its structure is not JSON"),
        (metadata_of("[" * 200 + "]" * 200), "no meaning"),
        (metadata_of('["list",' * 200 + "1" + "]" * 200), "levels deep"),
        (metadata_of("1" * 5000), "its structure is not JSON"),
        (metadata_of({"a": ["tensor", "other"]}), "needs a tensor 'other'"),
        (metadata_of({"a": ["pickle", "b"]}), "no meaning"),
        (metadata_of(["list", 1]), "holds a list, not a state"),
        (metadata_of(["tensor", "t"]), "holds a Tensor, not a state"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(
    tmp_path: Path, metadata: dict[str, str] | None, problem: str
) -> None:
    path = written(tmp_path / "a", metadata)
    with pytest.raises(InvalidCheckpoint, match=problem) as caught:
        load(path)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\0" * 100, b"\xff" * 100, b"\x80\x04\x95", b"PK\x03\x04" * 9],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(InvalidCheckpoint, match=r"damaged, or no checkpoint|cannot be"):
        load(tmp_path / "a")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidCheckpoint, match="cannot be read"):
            load(path)


def load_or_refuse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        state = load(path)
    except InvalidCheckpoint:
        return
    save(path, state)  # well-formed: it can be written again


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("intact") / "a"
    adam = {"step": torch.tensor(3.0), "exp_avg": torch.arange(6.0).reshape(2, 3)}
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None, "params": [0]}]
    state = {
        "model": torch.nn.BatchNorm1d(2).state_dict(),
        "optimizer": {"state": {0: adam}, "param_groups": groups},
    }
    more = {"z": torch.ones(2, dtype=torch.complex128), "array": np.arange(3.0)}
    plain = {"n": np.float32(1), "all": (None, True, 2**70, float("inf"), {(1,): "é"})}
    save(path, state | more | plain)
    return path, path.read_bytes()


def test_a_truncated_file_is_always_refused(intact: tuple[Path, bytes]) -> None:
    path, data = intact
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        with pytest.raises(InvalidCheckpoint):
            load(path)


@given(st.data())
def test_a_file_with_changed_bytes_is_a_state_or_refused(
    intact: tuple[Path, bytes], data: st.DataObject
) -> None:
    path, whole = intact
    spoilt = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(spoilt) - 1))
        spoilt[place] = data.draw(st.integers(0, 255) | st.sampled_from(b'[]{}",:019'))
    load_or_refuse(path, bytes(spoilt))


@given(st.data())
def test_a_file_with_a_piece_cut_out_or_doubled_is_a_state_or_refused(
    intact: tuple[Path, bytes], data: st.DataObject
) -> None:
    path, whole = intact
    first, second = sorted(data.draw(st.integers(0, len(whole))) for _ in range(2))
    load_or_refuse(path, whole[:first] + whole[second:])
    load_or_refuse(path, whole[:second] + whole[first:])


@given(st.data())
def test_a_spoilt_structure_is_a_state_or_refused(
    intact: tuple[Path, bytes], data: st.DataObject
) -> None:
    """The structure alone, so that the header of the file stays right."""
    path, whole = intact
    path.write_bytes(whole)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    del metadata["xxh3"]  # it would refuse all of them
    text = metadata["structure"]
    first, second = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    second = min(second, first + 3)
    piece = data.draw(st.text('[]{}",:019-e.tfn<>|ui', max_size=4))
    metadata["structure"] = text[:first] + piece + text[second:]
    load_or_refuse(path, safetensors.torch.save(tensors, metadata))


def with_header(header: dict[str, Any], size: int) -> bytes:
    metadata = {"__metadata__": metadata_of({"a": ["tensor", "t"]})}
    text = json.dumps(metadata | {"t": header}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F8_E8M0", "C64", "I128", "BOOL"])
@pytest.mark.parametrize("shape", [[], [16], [2**62, 4], [0, 2**63], [-1], [1] * 99])
def test_a_header_that_lies_is_refused(
    tmp_path: Path, dtype: str, shape: list[int]
) -> None:
    for size in (0, 1, 16):
        header = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
        load_or_refuse(tmp_path / "a", with_header(header, size))


# A shelf


def test_a_shelf_keeps_the_newest(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "runs" / "checkpoints", keep=2)
    assert shelf.steps() == []
    assert shelf.newest() is None
    for step in (0, 100, 99_999_999, 100_000_000):
        path = shelf.write(step, state_of(step))
        assert path.name == f"step-{step:08d}.safetensors"
    assert shelf.steps() == [99_999_999, 100_000_000]
    step, state = shelf.newest()
    assert step == 100_000_000
    assert is_state_of(state, step)
    assert len(files(shelf.folder)) == 2


def test_what_is_not_of_the_shelf_stays(tmp_path: Path) -> None:
    others = [
        "notes.txt",
        "step-1.safetensors",
        "step-000000007.safetensors",
        ".hidden",
    ]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / "step-00000003.safetensors").mkdir()
    shelf = Shelf(tmp_path, keep=1)
    for step in (4, 5):
        shelf.write(step, {})
    assert shelf.steps() == [5]
    kept = {*others, "step-00000003.safetensors", "step-00000005.safetensors"}
    assert set(files(tmp_path)) == kept


def test_a_step_can_be_written_again(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.write(1, {"a": 1})
    shelf.write(1, {"a": 2})
    assert shelf.newest() == (1, {"a": 2})


def test_strays_of_killed_writes_are_removed(tmp_path: Path) -> None:
    stray = tmp_path / ".step-00000001.safetensors.0123abcd"
    stray.mkdir()
    (stray / ".tmpXyZ").write_text("half")
    (tmp_path / ".step-00000002.safetensors.0123abcd").write_text("half")
    shelf = Shelf(tmp_path)
    assert shelf.steps() == []
    shelf.write(3, {})
    assert files(tmp_path) == ["step-00000003.safetensors"]


def test_a_damaged_newest_is_warned_of_and_the_one_before_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(tmp_path, keep=4)
    paths = [shelf.write(step, state_of(step)) for step in (1, 2, 3, 4)]
    paths[3].write_bytes(paths[3].read_bytes()[:-5])
    paths[2].write_bytes(b"")
    with caplog.at_level(logging.WARNING, "codedgrad"):
        step, state = shelf.newest()
    assert step == 2
    assert is_state_of(state, 2)
    [record] = caplog.records
    assert record.getMessage().startswith(f"{paths[3]}: is damaged")
    assert record.getMessage().endswith("; going back to the checkpoint of step 2")


def test_an_intact_newest_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(tmp_path)
    shelf.write(1, {}).write_bytes(b"")
    shelf.write(2, {})
    assert shelf.newest() == (2, {})
    assert not caplog.records


def test_a_shelf_of_damaged_ones_is_refused(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for step in (1, 2):
        shelf.write(step, {}).write_bytes(b"")
    with pytest.raises(InvalidCheckpoint, match=r"none of its checkpoints .*00000002"):
        shelf.newest()


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_going_back_removes_what_came_later(tmp_path: Path, keep: int) -> None:
    shelf = Shelf(tmp_path, keep=5)
    for step in (10, 20, 30):
        shelf.write(step, state_of(step))
    Shelf(tmp_path, keep).write(15, state_of(15))
    assert shelf.steps() == [10, 15][-keep:]
    step, state = shelf.newest()
    assert is_state_of(state, step)


def test_a_write_that_fails_leaves_the_shelf(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, keep=1)
    shelf.write(1, state_of(1))
    with pytest.raises(InvalidCheckpoint):
        shelf.write(2, {"a": print})
    assert files(tmp_path) == ["step-00000001.safetensors"]


def test_a_shelf_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="keep = 0; try 1 or more"):
        Shelf(tmp_path, keep=0)
    with pytest.raises(InvalidCheckpoint, match="step -1 is below 0"):
        Shelf(tmp_path).write(-1, {})
    (tmp_path / "file").touch()
    shelf = Shelf(tmp_path / "file")
    assert shelf.newest() is None
    with pytest.raises(InvalidCheckpoint, match=r"cannot be made: .*another folder"):
        shelf.write(1, {})


def test_an_old_one_that_cannot_be_removed_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(tmp_path, keep=1)
    old = shelf.write(1, {})

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    shelf.write(2, {})
    assert shelf.steps() == [1, 2]
    assert f"{old} cannot be removed: " in caplog.text


# Killed writers

WRITER = """
import os, resource, signal, sys
import torch
from codedgrad.torch.checkpoint import files as checkpoint
from codedgrad.trace import files

def say(*words):
    line = " ".join(map(str, words)) + "\\n"
    os.write(1, line.encode())  # at once: print writes a word at a time

def halt(moment):
    say(moment)
    signal.pause()

def half_written(path, pieces):
    path.write_bytes(b"half")
    halt("half_written")

def pausing_at(moment):
    if moment == "half_written":
        files.fill = half_written
    elif moment == "synced":
        fill = files.fill
        files.fill = lambda *given: (fill(*given), halt("synced"))
    elif moment == "replaced":
        replace = os.replace
        os.replace = lambda *paths: (replace(*paths), halt("replaced"))
    elif moment == "removing":
        checkpoint._remove = lambda path: halt("removing")

def write(folder, moment):
    shelf = checkpoint.Shelf(folder, keep=2)
    size = 1_000_000 if moment == "any" else 10
    if moment == "too large":
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        size = 100_000
    for step in range(1, 10_000):
        if step == 3:
            pausing_at(moment)
        say("writing", step)
        try:
            shelf.write(step, {"step": step, "t": torch.full((size,), float(step))})
        except checkpoint.InvalidCheckpoint as error:
            say(error)
            halt("refused")
        say("wrote", step)

torch.set_num_threads(1)
for line in sys.stdin:
    folder, moment = line.rstrip().split("\\t")
    go, gone = os.pipe()
    child = os.fork()
    if not child:
        os.read(go, 1)
        write(folder, moment)
    say("child", child)
    os.write(gone, b"!")
    say("ended", os.waitpid(child, 0)[1])
"""

Kill = Callable[[Path, str, str], list[str]]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    """Kill a writer to a folder, made to halt somewhere, once it has said a line.

    The writers are forked from one process that imported torch before.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None

    def call(folder: Path, moment: str, last: str) -> list[str]:
        parent.stdin.write(f"{folder}\t{moment}\n")
        word, child = parent.stdout.readline().split()
        assert word == "child"
        lines = list[str]()
        try:
            while last not in lines:
                lines.append(parent.stdout.readline().rstrip())
                assert not lines[-1].startswith("ended"), lines
        finally:
            os.kill(int(child), signal.SIGKILL)
        for line in parent.stdout:
            if line == f"ended {signal.SIGKILL.value}\n":
                return lines
            lines.append(line.rstrip())
        raise AssertionError("the parent of the writers has ended")

    with parent:
        yield call
        parent.stdin.close()


def check_goes_on(folder: Path, at_least: int) -> None:
    """Check that the newest is whole, and that the next write tidies up."""
    shelf = Shelf(folder, keep=2)
    step, state = shelf.newest()
    assert step >= at_least
    assert state["step"] == step
    assert bool((state["t"] == step).all())
    strays = [name for name in files(folder) if name.startswith(".")]
    assert len(strays) <= 1
    shelf.write(step + 1, {})
    names = [f"step-{kept:08d}.safetensors" for kept in shelf.steps()]
    assert files(folder) == names
    assert len(names) == 2


@pytest.mark.parametrize(
    ("moment", "newest", "strays"),
    [("half_written", 2, 1), ("synced", 2, 1), ("replaced", 3, 0), ("removing", 3, 0)],
)
def test_a_writer_killed_at_a_moment_leaves_a_whole_newest(
    tmp_path: Path, kill: Kill, moment: str, newest: int, strays: int
) -> None:
    lines = kill(tmp_path, moment, moment)
    assert lines[-2:] == ["writing 3", moment]
    assert len([name for name in files(tmp_path) if name[0] == "."]) == strays
    assert Shelf(tmp_path).steps()[-1] == newest
    check_goes_on(tmp_path, newest)


@pytest.mark.parametrize("step", [2, 3, 5, 8, 13])
def test_a_writer_killed_at_any_moment_leaves_a_whole_newest(
    tmp_path: Path, kill: Kill, step: int
) -> None:
    lines = kill(tmp_path, "any", f"writing {step}")
    wrote = [int(line.split()[1]) for line in lines if line.startswith("wrote ")]
    check_goes_on(tmp_path, max(wrote))


def test_a_writer_without_space_says_so_and_leaves_nothing(
    tmp_path: Path, kill: Kill
) -> None:
    lines = kill(tmp_path, "too large", "refused")
    assert "cannot be written: " in lines[1]
    assert "File too large" in lines[1]
    assert files(tmp_path) == []


# Generators


def drawn() -> tuple[Any, ...]:
    legacy = np.random  # the global one, whose state is the matter here
    return (
        torch.rand(3).tolist(),
        torch.randn(1).tolist(),
        legacy.rand(3).tolist(),
        legacy.randn(),
        random.random(),
        random.gauss(0, 1),
    )


@pytest.fixture
def undisturbed() -> Iterator[None]:
    before = generators()
    yield
    restore_generators(before)


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("before", [0, 1, 7])
def test_generators_go_on_where_they_were(tmp_path: Path, before: int) -> None:
    for _ in range(before):
        drawn()  # an odd number leaves half a pair of normal numbers
    save(tmp_path / "a", {"generators": generators()})
    first = [drawn() for _ in range(3)]
    restore_generators(load(tmp_path / "a")["generators"])
    assert [drawn() for _ in range(3)] == first
    assert drawn() not in first


def spoil(state: dict[str, Any], *keys: Any, value: Any) -> dict[str, Any]:
    place = state
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return state


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["python"], None),
        (["python"], (3, [], None)),
        (["python"], (3, [2**70] * 625, None)),
        (["python"], (3, np.full(625, 9999), None)),
        (["python"], (9, np.zeros(625, int), None)),
        (["numpy"], 1),
        (["numpy", "state"], 1),
        (["numpy", "state", "pos"], 625),
        (["numpy", "state", "pos"], -1),
        (["numpy", "state", "pos"], "a"),
        (["numpy", "state", "key"], np.zeros(3)),
        (["numpy", "bit_generator"], "PCG64"),
        (["torch"], torch.zeros(3)),
        (["torch"], torch.zeros(3, dtype=torch.uint8)),
        (["torch"], torch.full((5056,), 255, dtype=torch.uint8)),
        (["torch"], None),
    ],
    ids=lambda value: repr(value)[:25],
)
def test_what_is_no_state_of_generators_is_refused(keys: list[Any], value: Any) -> None:
    state = spoil(generators(), *keys, value=value)
    with pytest.raises(InvalidCheckpoint, match="the states of the generators"):
        restore_generators(state)


def test_no_generators_at_all_are_refused() -> None:
    with pytest.raises(InvalidCheckpoint, match="KeyError"):
        restore_generators({})
