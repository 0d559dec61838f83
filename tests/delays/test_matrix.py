"""Recordings: what is written comes back, what is none is refused."""

import os
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from codedgrad.delays import Matrix, Replay, read_matrix, traces, write_matrix
from codedgrad.errors import InvalidDelays

SECONDS = np.array([[1.0, 0.1], [2.5, 1 / 3], [1e-7, 40.0]])
DURATION = "try seconds from 1e-09 to 8388608"
HEADER = "try a first line such as step,worker0,worker1 and commas between numbers"
STEPS = "try whole numbers, each more than the one before"
PLAIN = "try a 2-d array of floats, (steps, workers)"


def refused(act) -> str:
    with pytest.raises(InvalidDelays) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("ending", [".csv", ".npy", ".parquet", ".CSV"])
def test_what_is_written_is_read_exactly(tmp_path, ending) -> None:
    file = tmp_path / f"times{ending}"
    write_matrix(file, range(3), SECONDS, ["worker0", "worker1"])
    matrix = read_matrix(file)
    assert np.array_equal(matrix.seconds, SECONDS)
    assert matrix.steps.tolist() == [0, 1, 2]
    assert matrix.workers == ("worker0", "worker1")
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.hypothesis
@given(
    arrays.arrays(
        np.float64,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(1e-9, 8388608),
    ),
    st.data(),
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_any_recording_comes_back_with_steps_and_names(
    tmp_path_factory, ending, seconds, data
) -> None:
    rows, columns = seconds.shape
    steps = st.lists(
        st.integers(-(2**52), 2**52), min_size=rows, max_size=rows, unique=True
    )
    names = st.lists(
        st.text('ab," \né', min_size=1).map(lambda name: f"x{name}x"),
        min_size=columns,
        max_size=columns,
        unique=True,
    )
    numbers, workers = sorted(data.draw(steps)), tuple(data.draw(names))
    file = tmp_path_factory.getbasetemp() / f"any{ending}"
    write_matrix(file, numbers, seconds, workers)
    matrix = read_matrix(file)
    assert np.array_equal(matrix.seconds, seconds)
    assert matrix.steps.tolist() == numbers
    assert matrix.workers == workers


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_gaps_between_steps_are_kept(tmp_path, ending) -> None:
    file = tmp_path / f"times{ending}"
    write_matrix(str(file), [3, 4, 9], SECONDS, ["a", "b"])
    assert read_matrix(str(file)).follows.tolist() == [True, False]


def test_a_file_without_step_numbers_cannot_take_gaps(tmp_path) -> None:
    file = tmp_path / "times.npy"
    assert refused(lambda: write_matrix(file, [3, 4, 9], SECONDS, ["a", "b"])) == (
        f"{file}: .npy has no room for step numbers other than 0, 1, 2...; "
        "try a .csv or .parquet file, which keep the step numbers"
    )
    assert not file.exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch
) -> None:
    file = tmp_path / "times.csv"
    write_matrix(file, [0], [[1.0]], ["a"])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    text = refused(lambda: write_matrix(file, [0], [[2.0]], ["a"]))
    assert text == (
        f"{file}: cannot be written (No space left on device); "
        "try a folder that is there"
    )
    assert read_matrix(file).seconds.item() == 1.0
    assert os.listdir(tmp_path) == ["times.csv"]


@pytest.mark.parametrize("first", ["step", "Step", "iteration", "index", ""])
def test_a_first_column_of_step_numbers_may_have_several_names(tmp_path, first) -> None:
    file = tmp_path / "times.csv"
    file.write_text(f"{first},a,b\n4,1.5,2\n7,1,3\n")
    matrix = read_matrix(file)
    assert matrix.steps.tolist() == [4, 7]
    assert matrix.workers == ("a", "b")


def test_names_alone_are_workers(tmp_path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("node0,node1\n1.5,2\n1,3\n")
    matrix = read_matrix(file)
    assert matrix.steps.tolist() == [0, 1]
    assert matrix.workers == ("node0", "node1")
    assert matrix.seconds.tolist() == [[1.5, 2.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    "text",
    ["1,2\n3,4\n", "1,2\r\n3,4", "\ufeff1,2\n\n3,4\n\n", " 1 , 2\n3,4e0\n"],
    ids=repr,
)
def test_numbers_alone_are_steps_from_0(tmp_path, text) -> None:
    file = tmp_path / "times.csv"
    file.write_text(text, encoding="utf-8", newline="")
    matrix = read_matrix(file)
    assert matrix.seconds.tolist() == [[1, 2], [3, 4]]
    assert matrix.steps.tolist() == [0, 1]
    assert matrix.workers == ("worker0", "worker1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", f"is empty; {HEADER}"),
        ("\n\n", f"is empty; {HEADER}"),
        ("step,a,b\n", "has no line after the first; try a line per step"),
        ("step\n1\n", f"has no worker; {HEADER}"),
        (
            "1,5\n2,6\n3,5\n",
            f"the first column counts, as step numbers do, and is not "
            f"called step; {HEADER}",
        ),
        (
            "t,a\n0,5\n1,6\n",
            f"the first column counts, as step numbers do, and is not "
            f"called step; {HEADER}",
        ),
        ("a,2\n1,2\n", f"line 1 is neither numbers nor names; {HEADER}"),
        ("step,a,\n1,2,3\n", f"line 1 is neither numbers nor names; {HEADER}"),
        (
            "step;a;b\n1;2;3\n",
            "line 2, step;a;b: '1;2;3' is no number; try a number such as 1.25",
        ),
        (
            "step,a,b\n1,2,3\n2,3\n",
            "line 3 has 2 values, the first has 3; try as many on every line",
        ),
        (
            "1,2\n\n1,2,3\n",
            "line 3 has 3 values, the first has 2; try as many on every line",
        ),
        (
            "step,a,b\n1,2,fast\n",
            "line 2, b: 'fast' is no number; try a number such as 1.25",
        ),
        ("step,a\n1,\n", "line 2, a: '' is no number; try a number such as 1.25"),
        (
            "step,a\n1,1_0\n",
            "line 2, a: '1_0' is no number; try a number such as 1.25",
        ),
        (
            "1,2\n3,x\n",
            "line 2, column 2: 'x' is no number; try a number such as 1.25",
        ),
        (
            "step,a\n1,-2\n",
            f"step 1, worker a: -2.0 is not a duration; {DURATION}",
        ),
        ("step,a\n1,0\n", f"step 1, worker a: 0.0 is not a duration; {DURATION}"),
        ("step,a\n1,inf\n", f"step 1, worker a: inf is not a duration; {DURATION}"),
        ("step,a\n1,nan\n", f"step 1, worker a: nan is not a duration; {DURATION}"),
        (
            "step,a\n1,44803780000\n",
            f"step 1, worker a: 44803780000.0 is not a duration; {DURATION}",
        ),
        ("1\nnan\n", f"step 1, worker worker0: nan is not a duration; {DURATION}"),
        ("step,a\n2,1\n2,1\n", f"step 2 comes after step 2; {STEPS}"),
        ("step,a\n2,1\n1,1\n", f"step 1 comes after step 2; {STEPS}"),
        ("step,a\n1.5,1\n", f"1.5 is not a step number; {STEPS}"),
        ("step,a\nnan,1\n", f"nan is not a step number; {STEPS}"),
        ("step,a,a\n1,2,3\n", "two workers share a name; try unique names"),
    ],
    ids=repr,
)
def test_a_text_that_is_no_recording_is_refused(tmp_path, text, problem) -> None:
    file = tmp_path / "times.csv"
    file.write_text(text)
    assert refused(lambda: read_matrix(file)) == f"{file}: {problem}"


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"1," + b"9" * 200_000])
def test_bytes_that_are_no_text_are_refused(tmp_path, data) -> None:
    file = tmp_path / "times.csv"
    file.write_bytes(data)
    assert refused(lambda: read_matrix(file)) == (
        f"{file}: is not a text of values; {HEADER}"
    )


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.ones(3), f"seconds has shape (3,); {PLAIN}"),
        (np.ones((0, 3)), f"seconds has shape (0, 3); {PLAIN}"),
        (np.array(1.0), f"seconds has shape (); {PLAIN}"),
        (np.ones((1, 1, 1)), f"seconds has shape (1, 1, 1); {PLAIN}"),
        (
            np.array([["a"]]),
            f"seconds are array([['a']], dtype='<U1'), not numbers; {PLAIN}",
        ),
        (np.array([[True]]), f"seconds are array([[ True]]), not numbers; {PLAIN}"),
        (
            np.array([[1.0, -1.0]]),
            f"step 0, worker worker1: -1.0 is not a duration; {DURATION}",
        ),
        (
            np.array([[1.0, np.nan]]),
            f"step 0, worker worker1: nan is not a duration; {DURATION}",
        ),
    ],
    ids=str,
)
def test_an_array_that_is_no_recording_is_refused(tmp_path, array, problem) -> None:
    file = tmp_path / "times.npy"
    np.save(file, array)
    assert refused(lambda: read_matrix(file)) == f"{file}: {problem}"


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize("how", ["array", "bare", "garbage", "empty", "short"])
def test_pickles_and_garbage_are_never_executed(tmp_path, how) -> None:
    file = tmp_path / "times.npy"
    if how == "array":
        np.save(file, np.array([[Trap()]], dtype=object), allow_pickle=True)
    elif how == "short":
        np.save(file, np.ones((9, 9)))
        file.write_bytes(file.read_bytes()[:-8])
    else:
        content = {"bare": pickle.dumps(Trap()), "garbage": b"\x93NUMPY\x01\x00xx{"}
        file.write_bytes(content.get(how, b""))
    text = refused(lambda: read_matrix(file))
    assert text.startswith(f"{file}: is not a plain array (")
    assert text.endswith("; try numpy.save(path, seconds) with an array of floats")


def test_whole_numbers_of_seconds_are_read_as_floats(tmp_path) -> None:
    np.save(tmp_path / "times.npy", np.array([[1, 2]], dtype=np.uint8))
    assert read_matrix(tmp_path / "times.npy").seconds.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"a": [1.0]}, "the columns are ['a']; try step and then one per worker"),
        (
            {"a": [1.0], "step": [1]},
            "the columns are ['a', 'step']; try step and then one per worker",
        ),
        (
            {"step": [1], "a": ["x"]},
            "the column a does not hold numbers; try a number in every row",
        ),
        (
            {"step": [1, 2], "a": [1.0, None]},
            f"step 2, worker a: nan is not a duration; {DURATION}",
        ),
        ({"step": [2, 1], "a": [1.0, 1.0]}, f"step 1 comes after step 2; {STEPS}"),
        ({"step": [], "a": []}, None),
    ],
    ids=str,
)
def test_a_table_that_is_no_recording_is_refused(tmp_path, columns, problem) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "times.parquet"
    parquet.write_table(arrow.table(columns), file)
    text = refused(lambda: read_matrix(file))
    assert text.startswith(f"{file}: ")
    assert problem is None or text == f"{file}: {problem}"


def test_a_parquet_file_that_is_none_is_refused(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "times.parquet"
    file.write_bytes(b"PAR1 or not")
    text = refused(lambda: read_matrix(file))
    assert text.startswith(f"{file}: is not a parquet table (")
    assert "\n" not in text


def test_without_pyarrow_a_parquet_file_says_what_to_install(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "times.parquet"
    text = (
        f"{file}: parquet files need the package pyarrow; "
        'try pip install "codedgrad[parquet]"'
    )
    assert refused(lambda: write_matrix(file, [0], [[1.0]], ["a"])) == text
    file.write_bytes(b"")
    assert refused(lambda: read_matrix(file)) == text


def test_a_file_that_is_not_there_is_refused(tmp_path) -> None:
    file = tmp_path / "none.csv"
    assert refused(lambda: read_matrix(file)) == (
        f"{file}: cannot be read (No such file or directory); "
        "try the path of a recording"
    )
    assert "Is a directory" in refused(lambda: read_matrix(_folder(tmp_path)))
    there = tmp_path / "no" / "folder.csv"
    assert "cannot be written (No such file or directory)" in refused(
        lambda: write_matrix(there, [0], [[1.0]], ["a"])
    )


def _folder(parent):
    (parent / "folder.csv").mkdir()
    return parent / "folder.csv"


@pytest.mark.parametrize("name", ["times.xlsx", "times", "XX"])
def test_an_unknown_ending_is_refused(name) -> None:
    ending = ".xlsx" if name.endswith("x") else ""
    text = (
        f"{name}: the ending '{ending}' is not known; try one of .csv, .npy, .parquet"
    )
    assert refused(lambda: read_matrix(name)) == text
    assert refused(lambda: write_matrix(name, [0], [[1.0]], ["a"])) == text
    assert refused(lambda: Replay.read(name)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ([0, 1], [[1.0]], ["a"]),
            "matrix: seconds has shape (1, 1); "
            "try (2, 1), a row per step, a column per worker",
        ),
        (([], [[1.0]], ["a"]), f"matrix: steps are []; {STEPS}"),
        ((["x"], [[1.0]], ["a"]), f"matrix: steps are ['x']; {STEPS}"),
        (([0], [[1.0], [2, 3]], ["a"]), None),
    ],
    ids=str,
)
def test_a_matrix_that_does_not_fit_together_is_refused(arguments, text) -> None:
    got = refused(lambda: Matrix(*arguments))
    assert text is None or got == text


def test_the_bundled_recordings_are_those_described() -> None:
    files = traces()
    assert {name: read_matrix(file).seconds.shape for name, file in files.items()} == {
        "AR": (44, 4),
        "SE": (43, 32),
    }
    folder = files["AR"].parent
    assert "8efcd7f" in (folder / "ORIGIN.md").read_text()
    licence = (folder / "bytedance-straggleranalysis-LICENSE.txt").read_text()
    assert "Apache License" in licence
