"""Exhibits as files."""

import csv
import json
import math
from pathlib import Path

import pytest

from codedgrad.errors import InvalidOptions
from codedgrad.papers import PAPERS, Exhibit, Table
from codedgrad.papers.drawing import Axis, Curve, FigurePanel
from codedgrad.papers.paper import Column
from codedgrad.papers.writing import (
    check_folder,
    facts,
    write_exhibit,
    write_facts,
)

PAPER = PAPERS["gc-dc"]
TABLE = Table(
    (Column("scheme"), Column("mean step", "s"), Column("hidden", "1", is_shown=False)),
    (("a, b", 0.1, 2), ("c", math.inf, 3), ("d", None, math.nan)),
)
PANEL = FigurePanel(
    "one", Axis("time", "s"), Axis("loss", "1"), (Curve("a", [0.0, 1.0], [1.0, 0.5]),)
)
EXHIBIT = Exhibit("e", "E", "set", "claim", "own", ("f.",), TABLE, (PANEL,), True)


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_an_exhibit_is_a_picture_a_table_and_curves(tmp_path: Path) -> None:
    files = write_exhibit(tmp_path / "new" / "folder", PAPER, EXHIBIT)
    names = ["gc-dc-e.png", "gc-dc-e.csv", "gc-dc-e-curves.csv"]
    assert [file.name for file in files] == names
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in files[0].parent.iterdir()) == sorted(names)
    assert rows(files[1]) == [
        ["scheme", "mean step [s]", "hidden [1]"],
        ["a, b", "0.1", "2"],
        ["c", "", "3"],
        ["d", "", ""],
    ]
    assert rows(files[2])[0] == ["panel", "curve", "time [s]", "loss [1]"]


def test_written_again_it_is_replaced(tmp_path: Path) -> None:
    first = write_exhibit(tmp_path, PAPER, EXHIBIT)
    first[1].write_text("old")
    again = write_exhibit(tmp_path, PAPER, EXHIBIT)
    assert first == again
    assert rows(again[1])[0][0] == "scheme"
    assert len(list(tmp_path.iterdir())) == 3


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "gc-dc-e.png").mkdir()
    with pytest.raises(InvalidOptions, match="cannot be written"):
        write_exhibit(tmp_path, PAPER, EXHIBIT)
    assert [path.name for path in tmp_path.iterdir()] == ["gc-dc-e.png"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidOptions, match="--out"):
            check_folder(folder)
    check_folder(tmp_path / "not" / "yet" / "there")


def test_machines_get_all_columns_and_sentences_and_no_nan(tmp_path: Path) -> None:
    found = facts([(PAPER, [EXHIBIT])], seed=3, quick=True)
    write_facts(tmp_path / "papers.json", found)
    read = json.loads((tmp_path / "papers.json").read_text(encoding="utf-8"))
    assert (read["seed"], read["quick"]) == (3, True)
    [paper] = read["papers"]
    assert paper["not_available"] == PAPER.missing
    [one] = paper["exhibits"]
    assert one["columns"] == ["scheme", "mean step [s]", "hidden [1]"]
    assert one["rows"] == [["a, b", 0.1, 2], ["c", None, 3], ["d", None, None]]
    assert one["found"] == ["f."]
