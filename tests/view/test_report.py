"""The figures, the sentence and the page of a report."""

import dataclasses
import errno
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from codedgrad.delays import write_matrix
from codedgrad.errors import InvalidOptions, InvalidTrace
from codedgrad.schemes import fractional, ignore, uncoded
from codedgrad.view import (
    caveats,
    read_subject,
    read_subjects,
    summary,
    summary_table,
    verdict_on,
    write_page,
)
from codedgrad.view.page.curves import learning, time_per_step, work_per_step
from codedgrad.view.page.page import page
from codedgrad.view.page.panels import bins, label
from codedgrad.view.page.workers import answers, shares

Make = Callable[..., Path]

SLOW = [[0.5, 9.0], [0.5, 8.0], [0.5, 9.5], [0.5, 8.5]]
HOSTILE = "</script><script>document.title='gone'</script><img src=x onerror=alert(1)>"


def record(path: Path, seconds: list[list[float]]) -> Path:
    names = [f"gpu{number}" for number in range(len(seconds[0]))]
    write_matrix(path, range(len(seconds)), seconds, names)
    return path


# -- figures -------------------------------------------------------------------------


def test_the_summary_of_a_coded_run_by_hand(make_trace: Make) -> None:
    figures = summary(read_subject(make_trace(fractional(2, tolerance=1), SLOW)))
    assert (figures.steps, figures.gave_up) == (4, 0)
    assert (figures.workers, figures.parts) == (2, 2)
    assert figures.mean_seconds == figures.p50_seconds == figures.p99_seconds == 1.0
    assert (figures.heard, figures.late, figures.lost) == (1.0, 1.0, 0.0)
    assert (figures.messages, figures.exact) == (1.0, 1.0)
    assert (figures.work, figures.wasted) == (2.0, 0.0)
    assert figures.waiting_estimate == 1.0  # the late one had not one part by then
    assert figures.saved == 0.0
    assert not figures.waited_for_all
    assert math.isnan(figures.loss)


def test_the_summary_of_a_run_ends_with_its_last_loss_and_scores(
    make_run: Make,
) -> None:
    figures = summary(read_subject(make_run(uncoded(2), SLOW)))
    assert figures.loss == 0.125
    assert figures.scores == {"norm": 4.0, "accuracy": 0.3}
    assert figures.mean_seconds == pytest.approx(9.0)  # of the root, 0.25 s longer


def test_a_summary_for_machines_has_none_where_there_is_no_number(
    make_trace: Make,
) -> None:
    told = summary(read_subject(make_trace(uncoded(2), SLOW))).for_machines()
    assert told["loss"] is None
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_the_table_fits_80_columns_whatever_the_names_are(make_run: Make) -> None:
    path = make_run(uncoded(2), SLOW, label="a [bold]name[/bold] of many " + "x" * 60)
    console = Console(width=80, file=None)
    with console.capture() as shown:
        console.print(summary_table([summary(read_subject(path))]))
    assert "[bold]" in shown.get().replace("\n", "")
    assert max(map(len, shown.get().splitlines())) <= 80


# -- the sentence --------------------------------------------------------------------


def test_of_two_runs_the_measured_means_are_compared(make_run: Make) -> None:
    waiting = make_run(uncoded(2), SLOW, "waiting", "waiting")
    coded = make_run(fractional(2, tolerance=1), [[0.5, 0.5]] * 4)
    assert verdict_on(read_subjects([waiting, coded])) == (
        "Steps took 0.750 s on average with “coded” and 9.00 s with “waiting”: "
        "12 times as long."
    )


def test_coding_that_does_not_pay_is_said_not_to(make_trace: Make) -> None:
    even = [[1.0, 1.1], [1.1, 1.0], [1.0, 1.1], [1.1, 1.0]]
    paths = [
        make_trace(uncoded(2), even, "a.jsonl"),
        make_trace(fractional(2, tolerance=1), even, "b.jsonl"),
    ]
    assert verdict_on(read_subjects(paths)) == (
        "Nothing gained: simulated steps took 1.10 s on average with “uncoded” "
        "(waiting for all) and 2.00 s with “fractional(tolerance=1)”: "
        "1.8 times as long."
    )


def test_a_difference_that_may_be_chance_is_called_unclear(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    paths = [
        record(tmp_path / f"{name}.csv", draw.exponential(1.0, (30, 2)).tolist())
        for name in "ab"
    ]
    assert verdict_on(read_subjects(paths)).startswith("No clear difference: ")


def test_a_single_step_each_shows_nothing_clear(tmp_path: Path) -> None:
    paths = [record(tmp_path / f"{x}.csv", [[float(x), 1.0]]) for x in (1, 5)]
    assert verdict_on(read_subjects(paths)).startswith("No clear difference: ")


def test_sums_that_are_not_exact_are_not_passed_over(make_trace: Make) -> None:
    paths = [
        make_trace(
            uncoded(4), [[1.0, 1.0, 1.0, 9.0], [1.0, 1.0, 1.0, 8.0]] * 2, "a.jsonl"
        ),
        make_trace(
            ignore(4, 3), [[1.0, 1.0, 1.0, 9.0], [1.0, 1.0, 1.0, 8.0]] * 2, "b.jsonl"
        ),
    ]
    said = verdict_on(read_subjects(paths))
    assert "But 100 % of the sums of “ignore(count=3)” were not exact." in said


def test_a_single_run_is_told_beside_an_estimate_of_waiting_for_all(
    make_trace: Make,
) -> None:
    # Worker 0 had no part after 6 s; worker 1 needs 3 s, and is late in step 1 at 1 s.
    path = make_trace(fractional(2, tolerance=1), [[9.0, 3.0], [0.5, 3.0]])
    assert verdict_on([read_subject(path)]) == (
        "A step took 3.5 s; waiting for all in the same parts would have taken at "
        "least 4.5 s: saved at least 1 s a step. Late: worker 0 in 50 %, worker 1 in "
        "50 % of the steps."
    )


def test_a_code_that_costs_more_than_waiting_is_said_to_lose(make_trace: Make) -> None:
    path = make_trace(fractional(2, tolerance=1), [[1.0, 1.2]] * 3)
    assert verdict_on([read_subject(path)]) == (
        "A step took 2 s; waiting for all in the same parts would have taken 1.2 s: "
        "lost 0.8 s a step. Late: worker 1 in 100 % of the steps."
    )


def test_a_worker_that_never_finished_makes_the_estimate_a_bound(
    make_trace: Make,
) -> None:
    subject = read_subject(make_trace(fractional(2, tolerance=1), SLOW))
    assert verdict_on([subject]) == (
        "A step took 1 s; waiting for all in the same parts would have taken at "
        "least 1 s: what was saved is not known. Late: worker 1 in 100 % of the steps."
    )


def test_where_workers_finish_their_part_in_hand_the_same_run_tells_the_truth(
    make_trace: Make,
) -> None:
    # A part of worker 1 takes as long as nine steps, so it takes a while to see two.
    trace = make_trace(fractional(2, tolerance=1), SLOW * 20, drain=True)
    savings = read_subject(trace).savings
    assert savings.waiting.estimate == pytest.approx(8.75, rel=0.15)
    assert savings.saved == pytest.approx(7.75, rel=0.15)


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        ((0,), "Late: worker 0 in 100 %"),
        ((0, 2, 4, 6), "of the steps and 1 more."),
    ],
)
def test_late_workers_are_named_if_they_are_few(
    make_trace: Make, slow: tuple[int, ...], named: str
) -> None:
    # The partner of a slow worker answers first; of the other pairs one is late, too.
    seconds = [
        [90.0 if worker in slow else 1.0 + worker / 100 for worker in range(8)]
    ] * 2
    path = make_trace(fractional(8, tolerance=1), seconds)
    assert named in verdict_on([read_subject(path)])


def test_if_no_worker_was_late_that_is_said(make_trace: Make) -> None:
    path = make_trace(fractional(2, tolerance=0), [[1.0, 1.0]] * 3)
    subject = read_subject(path)
    assert verdict_on([subject]) == (
        "A step took 1 s; waiting for all in the same parts would have taken 1 s: "
        "nothing saved. No worker was late: a simulated step heard 2 of 2."
    )


def test_a_run_that_waits_says_when_half_had_answered(make_run: Make) -> None:
    path = make_run(uncoded(3), [[1.0, 1.0, 5.0]] * 4, logs=False)
    assert verdict_on([read_subject(path)]) == (
        "Every step waited for all 3 workers and took 5.00 s on average; half of the "
        "workers had answered after 1.00 s."
    )


def test_a_recording_says_what_waiting_for_all_takes(tmp_path: Path) -> None:
    path = record(tmp_path / "ddp.csv", [[1.0, 1.0, 5.0]] * 4)
    assert verdict_on([read_subject(path)]) == (
        "Waiting for all 3 workers takes 5.00 s a step on average; half of the workers "
        "are done after 1.00 s."
    )


def test_steps_given_up_are_counted(make_trace: Make) -> None:
    path = make_trace(uncoded(2), [[1.0, 1.0], [1.0, math.inf], [1.0, 1.0]])
    assert "It gave up " in verdict_on([read_subject(path)])


def test_a_run_without_a_single_sum_is_said_to_have_none(make_trace: Make) -> None:
    path = make_trace(uncoded(2), [[1.0, math.inf]])
    subject = read_subject(path)
    assert verdict_on([subject]) == "Every step was given up: there was not one sum."
    assert "1, 1 given up" in page([subject])


def test_runs_that_differ_in_more_than_the_scheme_are_said_to(
    make_run: Make, make_trace: Make, tmp_path: Path
) -> None:
    run = make_run(uncoded(2), SLOW)
    simulated = make_trace(uncoded(3), [[1.0, 1.0, 1.0]])
    recording = record(tmp_path / "ddp.csv", [[1.0, 2.0]])
    said = caveats(read_subjects([run, simulated, recording]))
    assert said == [
        "The numbers of workers differ: 2 (“coded”), 3 (“uncoded”), 2 (“ddp”).",
        "Simulated seconds are compared with measured ones.",
        "A step of “ddp” is taken to last as long as its slowest worker; sending and "
        "adding up are not in it.",
    ]
    assert caveats(read_subjects([run])) == []


# -- the plots -----------------------------------------------------------------------


def test_many_steps_are_put_into_bins_and_the_caption_says_so(tmp_path: Path) -> None:
    seconds = np.tile([[1.0, 2.0, 4.0]], (5001, 1))
    seconds[:, 2] += np.arange(5001) / 5001
    subject = read_subject(record(tmp_path / "long.csv", seconds.tolist()))
    section = time_per_step([subject])
    assert section is not None
    assert "bins of steps" in section.caption
    band, curve = section.panels[0].data
    assert len(curve["y"]) == 1667
    assert len(band["y"]) == 2 * 1667
    assert curve["y"][0] == pytest.approx(4.0002, abs=1e-4)
    assert time_per_step([subject]) == section


def test_many_lines_are_put_into_bins_too(
    make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedgrad.view.page.curves.MOST", 2)
    section = learning([read_subject(make_run(uncoded(2), [[1.0, 1.0]] * 4))])
    assert section is not None
    assert "means over bins of steps" in section.caption


def test_what_one_run_logged_and_another_did_not_is_drawn_for_the_one(
    make_run: Make,
) -> None:
    runs = [make_run(uncoded(2), SLOW, name, name) for name in ("one", "two")]
    lines = (runs[1] / "steps.jsonl").read_text().replace("accuracy", "error")
    (runs[1] / "steps.jsonl").write_text(lines)
    section = learning(read_subjects(runs))
    assert section is not None
    drawn = {panel.heading: [t["name"] for t in panel.data] for panel in section.panels}
    assert drawn == {
        "loss": ["one", "two"],
        "accuracy": ["one"],
        "error": ["two"],
        "norm (mean over the step)": ["one", "two"],
    }


def test_a_bin_of_the_heat_map_shows_what_happened_most_often(
    make_trace: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In two steps of three worker 1 is late, in one of three worker 0 is.
    monkeypatch.setattr("codedgrad.view.page.workers._CELLS", 4)
    monkeypatch.setattr("codedgrad.view.page.workers._FEWEST", 1)
    seconds = [[0.5, 9.0], [0.5, 9.0], [9.0, 0.5]] * 2
    section = answers([read_subject(make_trace(fractional(2, tolerance=1), seconds))])
    assert section is not None
    assert "Every column stands for 3 steps" in section.caption
    heard, late = section.panels[0].data
    assert heard["customdata"] == [[1.0, 1.0], [None, None]]
    assert late["customdata"] == [[None, None], [1.0, 1.0]]
    assert "at least" in late["hovertemplate"]


def test_a_worker_that_was_late_is_marked_apart_from_one_that_was_heard(
    make_trace: Make,
) -> None:
    section = answers([read_subject(make_trace(fractional(2, tolerance=1), SLOW))])
    assert section is not None
    heard, late = section.panels[0].data
    assert heard["customdata"] == [[1.0] * 4, [None] * 4]
    assert late["z"][0] == [None] * 4
    assert late["colorscale"] != heard["colorscale"]
    assert [key.text for key in section.keys] == [
        "heard after 1.00 s to 1.00 s",
        "late, darker is longer",
    ]


def test_a_cross_marks_where_a_worker_was_lost(
    make_trace: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = read_subject(make_trace(fractional(2, tolerance=1), SLOW))
    subject = dataclasses.replace(subject, losses=((2, 1), (3, 0)))
    section = answers([subject])
    assert section is not None
    *_, crosses = section.panels[0].data
    assert (crosses["x"], crosses["y"]) == ([2, 3], ["1", "0"])
    assert section.keys[-1].text == "lost just then"
    assert "2 times" in page([subject])
    monkeypatch.setattr("codedgrad.view.page.workers._ROWS", 1)
    crowd = answers([subject])
    assert crowd is not None
    assert crowd.panels[0].data[-1]["x"] == [2]


def test_shares_are_of_all_steps(make_trace: Make) -> None:
    seconds = [[0.5, 9.0], [0.5, 9.0], [0.5, 9.0], [9.0, 0.5]]
    section = shares([read_subject(make_trace(fractional(2, tolerance=1), seconds))])
    assert section is not None
    heard, late = section.panels[0].data
    assert heard["y"] == [75.0, 25.0]
    assert late["y"] == [25.0, 75.0]
    assert late["customdata"] == [1, 3]


def test_of_a_crowd_those_heard_least_are_shown(
    make_trace: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedgrad.view.page.workers._ROWS", 1)
    section = shares([read_subject(make_trace(fractional(2, tolerance=1), SLOW))])
    assert section is not None
    assert [trace["x"] for trace in section.panels[0].data] == [["1"]]
    assert "only the 1 that were heard least" in section.caption


def test_steps_with_gaps_keep_their_numbers_under_the_heat_map(tmp_path: Path) -> None:
    write_matrix(tmp_path / "gaps.csv", [3, 4, 90], [[1.0], [1.0], [1.0]], ["a"])
    section = answers([read_subject(tmp_path / "gaps.csv")])
    assert section is not None
    axis = section.panels[0].layout["xaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == ([0, 1, 2], ["3", "4", "90"])


def test_loss_and_scores_are_against_the_seconds_of_the_steps(make_run: Make) -> None:
    section = learning([read_subject(make_run(uncoded(2), [[1.0, 1.0]] * 4))])
    assert section is not None
    loss, accuracy, norm = section.panels
    assert loss.data[0]["x"] == [1.25, 2.5, 3.75, 5.0]
    assert loss.data[0]["y"] == [1.0, 0.5, 0.25, 0.125]
    assert accuracy.heading == "accuracy"
    assert accuracy.data[0]["x"] == [2.5, 5.0]
    assert norm.heading == "norm (mean over the step)"


def test_what_was_not_logged_is_not_drawn(make_run: Make, make_trace: Make) -> None:
    assert learning([read_subject(make_trace(uncoded(2), SLOW))]) is None
    assert learning([read_subject(make_run(uncoded(2), SLOW, logs=False))]) is None


def test_more_scores_than_can_be_drawn_are_counted(
    make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedgrad.view.page.curves._SCORES", 1)
    section = learning([read_subject(make_run(uncoded(2), SLOW))])
    assert section is not None
    assert len(section.panels) == 2
    assert "1 more were logged" in section.caption


def test_work_is_in_units_of_the_parts(make_trace: Make) -> None:
    path = make_trace(fractional(2, tolerance=1), [[0.5, 0.75]])
    section = work_per_step([read_subject(path)])
    assert section is not None
    useful, wasted = section.panels[0].data
    assert useful["x"] == [1.0]
    assert wasted["x"] == [0.5]


def test_bins_cover_every_step_once() -> None:
    for count in (0, 1, 7, 2000, 2001, 9999):
        cuts = bins(count)
        assert len(cuts) <= 2000
        covered = [x for cut in cuts for x in range(count)[cut]]
        assert covered == list(range(count))


# -- the page ------------------------------------------------------------------------


def figures_of(text: str) -> list[dict[str, object]]:
    found = re.search(
        r'<script type="application/json" id="figures">(.*?)</script>', text
    )
    assert found is not None
    figures: list[dict[str, object]] = json.loads(found[1])
    return figures


def test_a_page_has_the_verdict_the_facts_and_all_figures(
    make_run: Make, tmp_path: Path
) -> None:
    runs = [
        make_run(uncoded(2), SLOW, "waiting", "waiting"),
        make_run(fractional(2, tolerance=1), SLOW),
    ]
    write_page(runs, tmp_path / "page.html", "My title")
    text = (tmp_path / "page.html").read_text()
    assert "<title>My title</title>" in text
    assert "Steps took 9.00 s" in text or "No clear difference" in text
    for name in ("seconds", "answers", "shares", "learning", "work", "facts"):
        assert f'<section id="{name}">' in text
    assert len(figures_of(text)) == 1 + 2 + 2 + 3 + 1
    assert text.count('class="plot"') == 9
    assert len(text) < 10e6


def test_a_page_asks_the_network_for_nothing(make_run: Make) -> None:
    text = page([read_subject(make_run(uncoded(2), SLOW))])
    scripts = re.findall(r"<script[^>]*>", text)
    assert [tag for tag in scripts if "src" in tag] == []
    assert "default-src 'none'" in text
    assert text.count("'sha256-") == 2
    ours = re.sub(r"<script>/\*.*?</script>", "", text, flags=re.DOTALL)
    assert "http://" not in ours
    assert "https://" not in ours


def test_a_hostile_name_is_shown_and_not_obeyed(
    make_run: Make, make_trace: Make, tmp_path: Path
) -> None:
    run = make_run(uncoded(2), SLOW, label=HOSTILE[:60])
    trace = make_trace(uncoded(2), SLOW, note=HOSTILE)
    write_matrix(tmp_path / "evil.csv", [0, 1], [[1.0], [2.0]], [HOSTILE[:50]])
    lines = (run / "steps.jsonl").read_text().replace("accuracy", "<b>acc</b>")
    (run / "steps.jsonl").write_text(lines)
    subjects = read_subjects([run, trace, tmp_path / "evil.csv"])
    text = page(subjects, title=HOSTILE)
    assert "<script>document" not in text
    assert "<img src=x" not in text
    assert "<b>acc" not in text
    assert len(re.findall(r"</script>", text)) == 3
    assert len(figures_of(text)) == 3 + 1 + 3 + 2 + 1


def test_a_label_of_plotly_keeps_its_tags_to_itself() -> None:
    assert label('<a href="x">&') == '&lt;a href="x"&gt;&amp;'


def test_a_page_about_no_step_says_so(make_trace: Make, tmp_path: Path) -> None:
    path = make_trace(uncoded(2), [[1.0, 2.0]])
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    write_page([path], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "No step has ended yet." in text
    assert "none has ended yet" in text
    assert figures_of(text) == []


def test_an_empty_run_beside_another_is_named(make_trace: Make) -> None:
    empty = make_trace(uncoded(2), [[1.0, 2.0]], "empty.jsonl")
    empty.write_bytes(empty.read_bytes().splitlines(keepends=True)[0])
    other = make_trace(fractional(2, tolerance=1), SLOW, "other.jsonl")
    said = verdict_on(read_subjects([empty, other]))
    assert said.startswith("“fractional(tolerance=1)”: ")
    assert said.endswith("No step of “uncoded” has ended yet.")


def test_the_title_is_the_names_of_the_runs(make_trace: Make) -> None:
    paths = [make_trace(uncoded(2), SLOW, f"{name}.jsonl") for name in "abcd"]
    titles = [
        re.findall("<h1>(.*)</h1>", page(read_subjects(paths[:count])))
        for count in (1, 2, 3, 4)
    ]
    assert titles == [
        ["uncoded"],
        ["uncoded, a.jsonl and uncoded, b.jsonl"],
        ["uncoded, a.jsonl, uncoded, b.jsonl and uncoded, c.jsonl"],
        ["4 runs compared"],
    ]


def test_a_page_is_replaced_and_nothing_else_is(
    make_trace: Make, tmp_path: Path
) -> None:
    path, out = make_trace(uncoded(2), SLOW), tmp_path / "page.html"
    write_page([path], out, "one")
    write_page([path], out, "two")
    assert "<h1>two</h1>" in out.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "trace.jsonl"]
    other = tmp_path / "mine.html"
    other.write_text("<p>my own page</p>")
    with pytest.raises(InvalidOptions, match="is there and is something else"):
        write_page([path], other)
    assert other.read_text() == "<p>my own page</p>"


def test_a_report_about_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="no run was named"):
        write_page([], tmp_path / "page.html")


def test_a_run_that_will_not_do_leaves_the_old_page(
    make_trace: Make, tmp_path: Path
) -> None:
    path, out = make_trace(uncoded(2), SLOW), tmp_path / "page.html"
    write_page([path], out, "old")
    path.write_text("not a trace\n")
    with pytest.raises(InvalidTrace):
        write_page([path], out, "new")
    assert "<h1>old</h1>" in out.read_text()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere/page.html", "cannot be written"),
        ("page.txt", "does not end in .html"),
        ("folder.html", "is a folder"),
    ],
)
def test_a_target_that_will_not_do_is_refused_before_anything_is_read(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InvalidOptions, match=why):
        write_page([tmp_path / "no run"], tmp_path / name)


def test_a_full_disk_leaves_the_old_page_and_is_one_sentence(
    make_trace: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path, out = make_trace(uncoded(2), SLOW), tmp_path / "page.html"
    write_page([path], out, "old")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InvalidOptions, match=r"cannot be written \(No space left"):
        write_page([path], out, "new")
    assert "<h1>old</h1>" in out.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "trace.jsonl"]


def test_without_plotly_the_extra_is_named(
    make_trace: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(InvalidOptions, match=r"codedgrad\[report\]"):
        write_page([make_trace(uncoded(2), SLOW)], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
