"""A scenario, from a file or from flags, is checked before anything runs."""

import re
from pathlib import Path

import pytest

from codedgrad.delays import Chain, write_matrix
from codedgrad.errors import InvalidDelays, InvalidOptions, InvalidScenario
from codedgrad.scenario.delays_text import table_of
from codedgrad.scenario.scenario import (
    Flags,
    Scenario,
    read_scenario,
    scenario_from_flags,
)
from codedgrad.sim import Machine

ROOT = Path(__file__).parents[2]
GOOD = """
[[schemes]]
scheme = "uncoded"
[[delays]]
kind = "shifted-exponential"
"""


def _read(folder: Path, text: str) -> Scenario:
    file = folder / "job.toml"
    file.write_text(text)
    return read_scenario(file)


def _names(scenario: Scenario) -> list[str]:
    return [scheme.name for scheme in scenario.schemes]


def test_a_file_says_everything_a_scenario_has(tmp_path: Path) -> None:
    scenario = _read(
        tmp_path,
        """
        title = "two lines\\nin one"
        workers = 6
        steps = 7
        runs = 3
        seed = 5
        pieces = 2
        [machine]
        drain = false
        progress = false
        latency = 0.5
        [[schemes]]
        scheme = "cyclic(tolerance=2)"
        [[schemes]]
        name = "fractional"
        tolerance = 1
        pieces = 4
        [[delays]]
        kind = "shifted-exponential"
        mean = 0.25
        [[delays]]
        kind = "sticky"
        factor = 10
        workers = [5]
        always = true
        """,
    )
    assert (scenario.workers, scenario.steps, scenario.runs) == (6, 7, 3)
    assert (scenario.seed, scenario.title) == (5, "two lines in one")
    assert scenario.machine == Machine(drain=False, progress=False, latency=0.5)
    assert _names(scenario) == [
        "cyclic(tolerance=2, pieces=2)",
        "fractional(tolerance=1, pieces=4)",
    ]
    assert str(scenario.delays).endswith("sticky: 10 x slow, always, workers [5]")
    assert scenario.notes == ()


def test_flags_say_the_same_as_a_file(tmp_path: Path) -> None:
    sticky = "sticky(factor=10, workers=5, always=true)"
    flags = Flags(
        workers=6,
        schemes=["uncoded"],
        delays=["shifted-exponential(mean=0.5)", sticky],
        drain=False,
    )
    text = f"""
    workers = 6
    schemes = ["uncoded"]
    delays = ["shifted-exponential(mean=0.5)", "{sticky}"]
    machine = {{ drain = false }}
    """
    said, read = scenario_from_flags(flags), _read(tmp_path, text)
    assert said.delays == read.delays
    assert (said.workers, said.machine, _names(said)) == (
        read.workers,
        read.machine,
        _names(read),
    )


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("workers = 6\nsteps = 9\n" + GOOD + "[machine]\nlatency = 2\n")
    flags = Flags(workers=4, schemes=["cyclic(1)"], drain=False)
    scenario = scenario_from_flags(flags, file)
    assert (scenario.workers, scenario.steps) == (4, 9)
    assert scenario.machine == Machine(drain=False, latency=2)
    assert _names(scenario) == ["cyclic(tolerance=1)"]


def test_a_recording_is_looked_for_next_to_the_file_and_sets_the_size(
    tmp_path: Path,
) -> None:
    write_matrix(tmp_path / "times.csv", [0, 1], [[1.0, 2.0, 3.0]] * 2, "abc")
    scenario = _read(
        tmp_path,
        """
        [[schemes]]
        name = "uncoded"
        [[delays]]
        kind = "replay"
        path = "times.csv"
        """,
    )
    assert (scenario.workers, scenario.steps, scenario.runs) == (3, 2, 1)


def test_what_is_assumed_is_said() -> None:
    change = scenario_from_flags(Flags(delays=["jitter(factor=2)"]))
    assert isinstance(change.delays, Chain)
    assert change.notes == (
        "jitter changes a law and none was given: "
        "shifted-exponential(floor=1, mean=0.1) is assumed.",
    )
    odd = scenario_from_flags(Flags(workers=5, delays=["shifted-exponential"]))
    assert _names(odd) == ["uncoded", "cyclic(tolerance=1)"]
    assert odd.notes == (
        "fractional(tolerance=1) is left out: it does not fit 5 workers.",
    )


def test_the_share_of_the_command_line_is_for_recordings() -> None:
    half = scenario_from_flags(Flags(delays=["AR"], share=0.5))
    assert "50 % grows with the load" in str(half.delays)
    with pytest.raises(InvalidOptions, match="--share: is given twice"):
        scenario_from_flags(Flags(delays=["replay(path=AR, share=0.2)"], share=0.5))
    with pytest.raises(InvalidOptions, match="--share: there is no recording"):
        scenario_from_flags(Flags(share=0.5))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("worker = 3\n" + GOOD, "there is no key 'worker'; try 'workers' of title"),
        ("steps = 0\n" + GOOD, "steps: is 0; try a whole number from 1 to"),
        ("runs = 'two'\n" + GOOD, "runs: must be a whole number, got 'two'"),
        ("seed = true\n" + GOOD, "seed: must be a whole number, got True"),
        ("title = 3\n" + GOOD, "title: must be a text, got 3"),
        ("workers = 20000\n" + GOOD, "workers: is 20000; try a whole number from 1"),
        ("steps = 20000000\n" + GOOD, "steps: 20000000 steps x 8 workers are too many"),
        ("machine = 3\n" + GOOD, "machine: must be a table, got 3; try [machine]"),
        (GOOD + "[machine]\nlatncy = 1", "machine: there is no key 'latncy'; try 'lat"),
        (
            GOOD + "[machine]\nlatency = -1",
            "machine.latency: is -1; try seconds from 0 to",
        ),
        (GOOD + "[machine]\nlatency = nan", "machine.latency: is nan; try seconds"),
        (GOOD + "[machine]\ndrain = 1", "machine.drain: must be true or false, got 1"),
        ("steps = [", "is not TOML: "),
        ("a = 1\nb = \n", "is not TOML: Invalid value (at line 2, column 5)"),
        ("", "delays: is missing; try one [[delays]] at least"),
        (
            "[[delays]]\nkind='shifted-exponential'",
            "schemes: is missing; try one [[sch",
        ),
        ("schemes = []\ndelays = ['AR']", "schemes: is empty; try one [[schemes]]"),
        ("schemes = 'uncoded'\ndelays = ['AR']", "schemes: must be a list of tables"),
        ("schemes = [3]\ndelays = ['AR']", "schemes[1]: 3 is not a table; try {scheme"),
        (
            "[delays]\nkind='dead'",
            "delays: is one table, a list is wanted; try [[delay",
        ),
        ("delays = [3]\nschemes = ['uncoded']", "delays: 3 is not a table; try {kind"),
        (GOOD + "[[schemes]]\nrule='x'", "schemes[2]: either scheme or name is wanted"),
        (GOOD + "[[schemes]]\nname=3", "schemes[2]: 3 is not the name of a scheme"),
        (
            GOOD + "[[schemes]]\nname='cyclik'",
            "schemes[2]: there is no scheme 'cyclik'",
        ),
        (
            GOOD + "[[schemes]]\nname='cyclic'\ntolerence=1",
            "schemes[2]: cyclic has no option tolerence; try tolerance",
        ),
        (
            GOOD + "[[schemes]]\nscheme='cyclic(tolerance=1)'\ntolerance=1",
            "schemes[2]: cyclic: tolerance is given twice; try one tolerance",
        ),
        (
            GOOD + "[[schemes]]\nname='fractional'\ntolerance=2",
            "schemes[2]: fractional: tolerance + 1 = 3 must divide workers = 8; try",
        ),
        (GOOD + "[[delays]]\nkind='spike'", "delays: kind = 'spike' is not known; try"),
        (
            GOOD + "[[delays]]\nkind='dead'\nworker=8",
            "delays: dead: there is no worker 8 among 8; try a worker from 0 to 7",
        ),
        (
            "workers = 8\nschemes = ['uncoded']\ndelays = ['AR']",
            "delays: replay: 4 workers were recorded, 8 are asked for; try workers = 4",
        ),
    ],
)
def test_a_bad_file_is_named_with_the_key_the_fault_and_a_remedy(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(InvalidScenario) as caught:
        _read(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'job.toml'}: ")
    assert complaint in said
    assert caught.value.advice
    assert "\n" not in said


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidScenario, match="cannot be read"):
        read_scenario(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidScenario, match="is not a text in UTF-8"):
        read_scenario(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("shifted_exponential", {"kind": "shifted-exponential"}),
        ("spikes(low=.5, high=2e1)", {"kind": "spikes", "low": 0.5, "high": 20.0}),
        ("jitter(workers=2)", {"kind": "jitter", "workers": 2}),
        ("classes(factors=3)", {"kind": "classes", "factors": [3]}),
        ("replay(path='a.csv', order=shuffled)",
         {"kind": "replay", "path": "a.csv", "order": "shuffled"}),
        ("markov(fast={floor=1, mean=0.5}, enter=1)",
         {"kind": "markov", "fast": {"floor": 1, "mean": 0.5}, "enter": 1}),
        ("some/where.npy", {"kind": "replay", "path": "some/where.npy"}),
    ],
)  # fmt: skip
def test_delays_in_words_are_tables(text: str, table: dict[str, object]) -> None:
    assert table_of(text) == table


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sticky(factor=3", "cannot be read"),
        ("classes(factors=[1, 2)", "has an odd bracket"),
        ("", "cannot be read"),
        ("stick(factor=3)", "there is no kind 'stick'; try 'sticky' of shifted-exp"),
        ("zzz", "there is no kind 'zzz'; try one of shifted-exponential"),
        ("dead(3)", "'3' in 'dead(3)' is not key=value; try keys of worker, step"),
        ("dead(worker=)", "'worker=' in 'dead(worker=)' is not key=value"),
        ("dead(worker=1, worker=2)", "worker is given twice; try one worker"),
        ("dead(wrker=1)", "there is no key 'wrker'; try 'worker' of worker, step"),
        ("none.csv", "none.csv: cannot be read (No such file"),
        ("none.txt", "none.txt: the ending '.txt' is not known; try one of .csv"),
    ],
)
def test_words_that_are_no_delays_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidDelays, match=re.escape(complaint)):
        scenario_from_flags(Flags(delays=[text]))


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/*.toml")), ids=str)
def test_an_example_is_a_scenario(file: Path) -> None:
    assert len(read_scenario(file).schemes) >= 3


@pytest.mark.parametrize(
    ("key", "flags"), [("steps", {"steps": 45}), ("runs", {"runs": 2})]
)
def test_a_recording_is_not_played_twice_as_if_that_were_evidence(
    key: str, flags: dict[str, int]
) -> None:
    with pytest.raises(InvalidOptions, match=f"--{key}: .*order=shuffled"):
        scenario_from_flags(Flags(delays=["AR"], **flags))
    shuffled = Flags(delays=["replay(path=AR, order=shuffled)"], **flags)
    assert getattr(scenario_from_flags(shuffled), key) == flags[key]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("steps = " + "9" * 5000, "is not TOML"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ('schemes = ["uncoded"]\n[machine]\nlatency = ' + "9" * 400, "latency"),
        (
            'schemes = ["uncoded"]\n'
            'delays = [{kind = "replay", path = "x\\u0000.csv"}]',
            "cannot be read",
        ),
    ],
    ids=["digits", "depth", "latency", "null"],
)
def test_a_file_that_means_harm_is_one_sentence(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "job.toml"
    if "delays" not in text:
        text = 'delays = ["shifted-exponential"]\n' + text
    file.write_text(text)
    with pytest.raises(InvalidScenario, match=why) as caught:
        read_scenario(file)
    assert len(str(caught.value)) < 500


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        '\ufefftitle = "a\\u0000b"\nschemes = ["uncoded"]\ndelays = ["AR"]\n'
    )
    assert read_scenario(file).title == "a b"
