"""Shared memory: there is enough of it or one is told, and none is left behind."""

import mmap
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codedgrad.engines.host.memory_layout import (
    Memory,
    MemoryShape,
    Private,
    WorkerMemory,
)
from codedgrad.engines.host.shared_memory import Shared, available_memory, sweep
from codedgrad.errors import EngineFailed
from codedgrad.jobs import VectorLayout


def folders(tmp_path: Path) -> tuple[Path | None, ...]:
    return None, tmp_path


def test_what_one_writes_the_other_reads_in_a_folder_or_nowhere(
    tmp_path: Path,
) -> None:
    for folder in folders(tmp_path):
        ours = Shared(8000, folder=folder)
        theirs = Shared.attach(os.dup(ours.fd), 8000)
        view = ours.array("float64", (10, 100))
        assert not view.any()
        view[3, 4] = 7.0
        assert theirs.array("float64", (100,), offset=300 * 8)[4] == 7.0
        del view
        theirs.close()
        ours.close()
        ours.close()  # harmless


def test_nothing_is_to_be_seen_in_the_folder_while_it_is_in_use(tmp_path: Path) -> None:
    memory = Shared(8000, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    memory.close()


def test_without_nameless_memory_the_usual_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(
        "codedgrad.engines.host.shared_memory._usual_folder", lambda: tmp_path
    )
    (tmp_path / f"codedgrad-{dead_pid()}-0123456789abcdef").touch()
    memory = Shared(8000)
    memory.array("float64", (1000,))[:] = 1.0
    memory.close()
    assert list(tmp_path.iterdir()) == []  # the leftover has been swept


@pytest.mark.parametrize("nameless", [True, False])
def test_more_memory_than_there_is_is_refused(nameless: bool, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed) as caught:
        Shared(10**15, folder=None if nameless else tmp_path)
    where = "this machine" if nameless else str(tmp_path)
    needed = "the workers need 1,000,000,000 MB of shared memory"
    assert re.search(rf"{needed}, {where} has [\d,]+ MB left; try ", str(caught.value))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(EngineFailed, match=f"cannot be made in {nowhere}: No such"):
        Shared(8000, folder=nowhere)


def test_memory_left_is_some_and_not_more_than_the_machine_has() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() <= total


def dead_pid() -> int:
    """Return the number of a process that has ended and been waited for."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_what_a_killed_root_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / f"codedgrad-{dead_pid()}-0123456789abcdef"
    kept = [
        tmp_path / f"codedgrad-{os.getpid()}-0123456789abcdef",  # alive
        tmp_path / "codedgrad-1-0123456789abcdef",  # alive, and perhaps not ours
        tmp_path / f"codedgrad-{dead_pid()}-notes",
        tmp_path / "something-else",
    ]
    for path in (left, *kept):
        path.touch()
    assert sweep(tmp_path) == 1
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_rows_and_versions_do_not_overlap() -> None:
    layout = VectorLayout(parameters=5, gradient=7, dtype="float32")
    shape = MemoryShape.of(layout, workers=3, open_segments=2)
    memory = Memory(Shared(shape.size), shape)
    tables = [*memory.versions, *memory.rows]
    assert len(tables) == (3 + 2) + 3 * 2 * 2
    for number, table in enumerate(tables):
        table[:] = number
    for number, table in enumerate(tables):
        np.testing.assert_array_equal(table, number)
    del table, tables
    memory.close()


def test_rows_that_nobody_fills_cost_nothing() -> None:
    layout = VectorLayout(parameters=1, gradient=1 << 20)  # 8 MB a row
    shape = MemoryShape.of(layout, workers=8, open_segments=8)
    shared = Shared(shape.size, shape.least)
    memory = Memory(shared, shape)
    for worker in range(8):
        memory.row(worker)[:] = 1.0
    used = os.fstat(shared.fd).st_blocks * 512
    assert shape.size > 1 << 30
    assert used < 1.01 * 8 * shape.row_bytes
    memory.close()


def test_memory_of_one_process_may_be_longer_than_the_machine_has() -> None:
    size = 1 << 42
    private = Private(size)
    private.array("float64", (3,), size - 64)[:] = 2.0
    np.testing.assert_array_equal(private.array("float64", (3,), size - 64), 2.0)


def test_workers_see_parameters_that_they_cannot_write() -> None:
    shape = MemoryShape.of(
        VectorLayout(parameters=5, gradient=5), workers=1, open_segments=1
    )
    memory = Memory(Shared(shape.size), shape)
    with pytest.raises(ValueError, match="read-only"):
        memory.parameters(0)[0] = 1.0
    memory.close()


def test_a_worker_writes_its_own_rows_and_only_reads_the_rest() -> None:
    layout = VectorLayout(parameters=5, gradient=7, dtype="float32")
    shape = MemoryShape.of(layout, workers=3, open_segments=3)
    shared = Shared(shape.size)
    root = Memory(shared, shape)
    whole = Memory(Shared.attach(os.dup(shared.fd), shape.size, read_only=True), shape)
    own = WorkerMemory(whole, os.dup(shared.fd), index=1)
    for number in range(shape.rows):
        root.row(number)[:] = number
        np.testing.assert_array_equal(own.row(number), number)
        is_own = 6 <= number < 12
        assert own.row(number).flags.writeable == is_own
        if is_own:
            own.row(number)[:] = -1.0
            np.testing.assert_array_equal(root.row(number), -1.0)
    root.publish(np.arange(5.0), ())
    np.testing.assert_array_equal(own.parameters(0), np.arange(5.0))
    with pytest.raises(ValueError, match="read-only"):
        own.parameters(0)[0] = 1.0


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("open_segments", [1, 3, 5, 8])
@pytest.mark.parametrize("gradient", [1, 1000, 100_000])
def test_the_rows_of_every_worker_fill_whole_pages(
    workers: int, open_segments: int, gradient: int
) -> None:
    layout = VectorLayout(parameters=gradient, gradient=gradient, dtype="float32")
    shape = MemoryShape.of(layout, workers, open_segments)
    assert shape.rows_offset % mmap.ALLOCATIONGRANULARITY == 0
    assert shape.places * shape.row_bytes % mmap.ALLOCATIONGRANULARITY == 0
    assert shape.row_bytes % 64 == 0
    assert shape.row_bytes - 4 * layout.message < mmap.ALLOCATIONGRANULARITY


IN_A_SMALL_CONTAINER = """
import sys
import numpy as np
from pathlib import Path
from codedgrad.engines import Local, train
from codedgrad.errors import EngineFailed
from codedgrad.schemes import fractional

def gradient(x, part, step):
    return 0.0, 1.0, x - 1.0

def run(**options):
    scheme = fractional(4, tolerance=1)
    return train(gradient, np.zeros(50_000), scheme, steps=3, rate=1.0, **options)

print("mounted")
try:
    run(engine=Local(folder=Path("/dev/shm")))
except EngineFailed as error:
    print("refused:", error)
print("left:", [p.name for p in Path("/dev/shm").iterdir()])
print("anywhere else:", set(run().parameters.tolist()))
"""


@pytest.fixture(scope="module")
def small_container() -> str:
    """What a run says whose /dev/shm has 1 MB, as 64 MB in a container may be."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a small /dev/shm needs root, and `unshare`")
    mount = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"'
    shown = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, sys.executable, IN_A_SMALL_CONTAINER],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "mounted" not in shown.stdout:
        pytest.skip(f"a small /dev/shm cannot be mounted: {shown.stderr.strip()}")
    return shown.stdout


def test_too_small_a_folder_is_noticed_at_start_with_what_is_needed(
    small_container: str,
) -> None:
    assert (
        "refused: the workers need 28 MB of shared memory, /dev/shm has 1 MB left"
        in (small_container)
    )
    assert "try a larger one (docker run --shm-size=...)" in small_container
    assert "left: []" in small_container


def test_by_default_a_small_dev_shm_does_not_matter(small_container: str) -> None:
    assert "anywhere else: {1.0}" in small_container
