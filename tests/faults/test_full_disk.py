"""A disk of 10 MB that fills up while a root trains on it.

The disk is a tmpfs in a mount namespace of its own, which goes when the roots have
ended. `training_roots` is what they run.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codedgrad.torch.checkpoint.files import Shelf
from codedgrad.trace import read_run

TOTAL = 48
FOREVER = 10**6  # steps of a root that does not come to its end
FULL_AT = 13  # its newest checkpoint is that of step 12
NAMES = ("checkpoints/step-", "trace/", "steps.jsonl", "status.json", "lock.json")
MOUNT = 'mount -t tmpfs -o size=10m tmpfs "$0" && exec "$@"'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small disk is, for the roots; for the tests nothing is there."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def roots(make_roots: Callable[..., Any], place: Path) -> Any:
    prefix = ("unshare", "--mount", "sh", "-c", MOUNT, str(place))
    try:
        trial = subprocess.run([*prefix, "true"], capture_output=True, text=True)
        problem = trial.stderr.strip() if trial.returncode else ""
    except FileNotFoundError as error:
        problem = str(error)
    if problem:
        pytest.skip(f"needs a mount namespace and a tmpfs, as root: {problem}")
    return make_roots(*prefix)


@pytest.fixture(scope="module")
def undisturbed(roots: Any, place: Path) -> Path:
    assert roots(place / "undisturbed", TOTAL).wait() == ""
    return place / "undisturbed"


class Disk:
    """The small disk, and the file that takes its space."""

    def __init__(self, roots: Any, place: Path) -> None:
        self._roots = roots
        self.filler = roots.seen(place) / "filler"
        self.run = place / "run"

    def fill(self, room: int = 0) -> None:
        self.free()
        self._roots.ask("fill", path=str(self.run.with_name("filler")), room=room)

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)


@pytest.fixture
def disk(roots: Any, undisturbed: Path, place: Path) -> Iterator[Disk]:
    made = Disk(roots, place)
    yield made
    made.free()
    subprocess.run(["rm", "-r", roots.seen(made.run)], check=True)


def kinds(root: Any) -> Counter[str]:
    """Count what a root has warned of, by the file."""
    return Counter(
        next((name for name in NAMES if name in line), line) for line in root.warnings()
    )


def check_warned_once(root: Any) -> None:
    """See that a root has warned of each file once.

    Some of them may be small enough for the last page of the disk.
    """
    counts = kinds(root)
    assert counts["checkpoints/step-"] == counts["trace/"] == 1
    assert counts <= Counter(NAMES), counts


@pytest.mark.quick("local")
@pytest.mark.parametrize("engine", ["here", "local"])
def test_training_goes_on_and_the_newest_checkpoint_that_fitted_is_gone_on_with(
    roots: Any, disk: Disk, undisturbed: Path, engine: str
) -> None:
    root = roots(disk.run, TOTAL, engine=engine, keep=1, fill_at=FULL_AT)
    last = f"{disk.run}/checkpoints/step-{TOTAL:08d}.safetensors: "
    space = "[Errno 28] No space left on device; make space or choose another folder"
    assert root.wait().endswith(f"InvalidCheckpoint: {last}cannot be written: {space}")
    check_warned_once(root)
    [warned] = [line for line in root.warnings() if "checkpoints/step-" in line]
    assert warned.endswith("; training goes on, the newest is that of step 12")
    assert Shelf(roots.seen(disk.run) / "checkpoints").steps() == [12]
    read_run(roots.seen(disk.run))

    disk.free()
    roots.check_end(disk.run, undisturbed, TOTAL)


def test_a_disk_that_is_full_for_a_while_costs_the_checkpoints_of_that_time(
    roots: Any, disk: Disk, undisturbed: Path
) -> None:
    root = roots(disk.run, TOTAL, keep=1, fill_at=FULL_AT, free_at=40)
    assert root.wait() == "", root.says
    check_warned_once(root)
    assert roots.check_whole(disk.run) == TOTAL
    roots.check_result(disk.run, undisturbed, TOTAL)


def test_checkpoints_that_outgrow_the_disk_are_fewer(
    roots: Any, disk: Disk, undisturbed: Path
) -> None:
    root = roots(disk.run, TOTAL, keep=5, ballast=700_000)  # three fit, with room
    assert root.wait() == "", root.says
    said = (
        f"{disk.run}/checkpoints is on a full disk: fewer than 5 checkpoints are kept"
    )
    assert root.warnings().count(said) == 1
    roots.check_end(disk.run, undisturbed, TOTAL)


@pytest.mark.parametrize("pages", [0, 1, 2])
def test_on_a_disk_that_is_full_a_run_does_not_begin_and_says_so_in_a_sentence(
    roots: Any, disk: Disk, undisturbed: Path, pages: int
) -> None:
    disk.fill(room=4096 * pages)
    root = roots(disk.run, TOTAL)
    error = root.wait()
    assert error.startswith(f"codedgrad.errors.InvalidFolder: run_dir {disk.run}: ")
    assert "No space left on device; try to make space, or another folder" in error
    assert root.says.count("Traceback") == 1

    disk.free()
    roots.check_end(disk.run, undisturbed, TOTAL)


def test_a_root_whose_heartbeat_does_not_fit_is_not_taken_for_dead(
    roots: Any,
    until: Callable[[Callable[[], object]], None],
    disk: Disk,
    undisturbed: Path,
) -> None:
    first = roots(disk.run, FOREVER, pace=0.02, fill_at=2)
    until(lambda: "status.json cannot be written" in first.says)
    second = roots(disk.run, TOTAL)
    error = second.wait()
    assert f"FolderInUse: run_dir {disk.run}: has a root that is alive" in error
    assert f"process {first.pid} on " in error
    first.kill()

    disk.free()
    roots.check_end(disk.run, undisturbed, TOTAL)
