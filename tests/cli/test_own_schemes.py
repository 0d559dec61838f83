"""Schemes of other packages and of files, through the real command line.

A package is a `dist-info` folder and a module on the path of a fresh process:
`importlib.metadata` finds its entry points as it finds those of an installed one.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codedgrad.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "your-own-scheme.md"

MINE = '''
"""Leaves a mark when it is imported."""
from dataclasses import dataclass
from pathlib import Path

from codedgrad.schemes import CodedScheme, auto, uncoded

Path(__file__).with_name("imported").touch()


def mine(workers, x=1):
    """Cut every share into x parts.

    Args:
        workers: How many.
        x: Parts for each worker.
    """
    if x > 100:
        raise ValueError(f"x = {x} is more than 100")
    plain = uncoded(workers, pieces=x)
    return CodedScheme(f"mine(x={x})", plain.code, plain.rule)


def preset(workers):
    return auto(workers, pieces=4)


def misnamed(workers):
    plain = uncoded(workers)
    return CodedScheme("something", plain.code, plain.rule)


def fewer(workers):
    return uncoded(workers - 1)


def starred(workers, **options):
    return uncoded(workers)


def none():
    return uncoded(4)


@dataclass
class Half:
    workers: int
    name: str = "half"


number = 3
'''


@dataclass
class Ended:
    code: int | str | None
    out: str
    err: str


Run = Callable[..., Ended]


def install(
    site: Path, entries: str, module: str = MINE, package: str = "mypackage"
) -> Path:
    """Put a package there that registers schemes; return its module."""
    folder = site / f"{package}-1.2.dist-info"
    folder.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
    (folder / "METADATA").write_text(metadata)
    (folder / "entry_points.txt").write_text(f"[codedgrad.schemes]\n{entries}\n")
    file = site / f"{package}.py"
    file.write_text(module)
    return file


def started(*words: str, site: Path | None, cwd: Path) -> Ended:
    """Run Python in a fresh process."""
    places = [ROOT / "src", *([] if site is None else [site])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Iterator[Run]:
    """Run the command line here, in an empty folder, with packages of `site`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    before = set(sys.modules)

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["codedgrad", *words])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Ended(end.value.code or 0, shown.out, shown.err)

    yield run
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]  # the next test has another one of this name


# -- registered by an entry point ----------------------------------------------------


def test_a_registered_scheme_works_on_the_real_command_line(tmp_path: Path) -> None:
    install(tmp_path / "site", "mine = mypackage:mine")
    compared = started(
        *shlex.split(
            "-m codedgrad simulate --workers 4 --steps 20 --json --scheme uncoded"
        ),
        *("--scheme", "mine(x=2)"),
        site=tmp_path / "site",
        cwd=tmp_path,
    )
    assert compared.code == 0, compared.err
    results = json.loads(compared.out)["results"]
    assert [one["name"] for one in results] == ["uncoded", "mine(x=2)"]
    assert results[1]["parts"] == 8


def test_no_package_is_imported_before_its_scheme_is_named(tmp_path: Path) -> None:
    module = install(tmp_path / "site", "mine = mypackage:mine")
    mark = module.with_name("imported")
    listed = started("-m", "codedgrad", "schemes", site=module.parent, cwd=tmp_path)
    assert "\nmine\n    Registered by mypackage 1.2 as mypackage:mine." in listed.out
    assert not mark.exists()
    words = ("-m", "codedgrad", "schemes", "mine")
    explained = started(*words, site=module.parent, cwd=tmp_path)
    assert explained.code == 0, explained.err
    assert mark.exists()


def test_a_registered_scheme_is_explained_with_its_origin(
    run: Run, tmp_path: Path
) -> None:
    install(tmp_path / "site", "mine = mypackage:mine")
    said = run("schemes", "mine").out
    assert said.startswith("mine(x=1)\n    Cut every share into x parts.\n")
    assert "    Registered by mypackage 1.2 as mypackage:mine.\n" in said
    assert "x (default 1)\n        Parts for each worker." in said
    example = shlex.split(said.partition("Example\n")[2].replace("\\\n", ""))
    assert run(*example[1:], "--steps", "10").code == 0


def test_machines_are_told_what_is_known_without_an_import(
    run: Run, tmp_path: Path
) -> None:
    module = install(tmp_path / "site", "mine = mypackage:mine")
    listed = json.loads(run("schemes", "--json").out)
    assert listed[-1]["name"] == "mine"
    assert listed[-1]["registered"] == "Registered by mypackage 1.2 as mypackage:mine."
    assert listed[-1]["options"] is None
    assert not module.with_name("imported").exists()
    [mine] = json.loads(run("schemes", "mine", "--json").out)
    assert [option["name"] for option in mine["options"]] == ["x"]
    assert set(mine) == set(listed[-1]) == set(listed[0])


def test_a_scenario_may_name_a_registered_scheme(run: Run, tmp_path: Path) -> None:
    install(tmp_path / "site", "mine = mypackage:mine")
    Path("own.toml").write_text(
        'workers = 4\nsteps = 10\nschemes = ["uncoded", "mine(x=3)"]\n'
        'delays = ["shifted-exponential(floor=1, mean=0.1)"]\n'
    )
    shown = run("simulate", "own.toml")
    assert shown.code == 0, shown.err
    assert "mine(x=3)" in shown.out


def test_a_scheme_may_be_a_preset_of_another(run: Run, tmp_path: Path) -> None:
    install(tmp_path / "site", "preset = mypackage:preset")
    shown = run("simulate", "--workers", "3", "--steps", "5", "--scheme", "preset")
    assert shown.code == 0, shown.err
    assert "auto(pieces=4)" in shown.out


@pytest.mark.parametrize(
    ("entries", "text", "said"),
    [
        (
            "mine = absent:mine",
            "mine",
            "scheme mine of mypackage 1.2 cannot be loaded from absent:mine: "
            "ModuleNotFoundError: No module named 'absent'; try installing mypackage "
            "1.2 again, or mending its entry point",
        ),
        (
            "mine = mypackage:yours",
            "mine",
            "scheme mine of mypackage 1.2 cannot be loaded from mypackage:yours: "
            "AttributeError: module 'mypackage' has no attribute 'yours'; try "
            "installing mypackage 1.2 again, or mending its entry point",
        ),
        (
            "auto = mypackage:mine",
            "auto",
            "there are 2 schemes called auto: of codedgrad itself and of mypackage 1.2 "
            "(mypackage:mine); try another name in the entry points of mypackage 1.2, "
            "or uninstalling it",
        ),
        (
            "mine = mypackage:number",
            "mine",
            "mypackage:number of mypackage 1.2 is of type int and makes no scheme; try "
            "a class, or a function of the number of workers that returns a scheme",
        ),
        (
            "mine = mypackage:Half",
            "mine",
            "mypackage:Half of mypackage 1.2 makes a Half, which is no scheme: it has "
            "no parts, placement, tolerance, exact, traits, plan; try adding them, as "
            "codedgrad.core.Scheme describes",
        ),
        (
            "mine = mypackage:none",
            "mine",
            "mypackage:none of mypackage 1.2 does not take a number of workers; try a "
            "class, or a function of the number of workers that returns a scheme",
        ),
        (
            "mine = mypackage:starred",
            "mine",
            "mypackage:starred of mypackage 1.2 takes **options; try a parameter with "
            "a name for every option",
        ),
        (
            "mine = mypackage:fewer",
            "mine",
            "mypackage:fewer of mypackage 1.2 is for 3 workers, and there are 4; try a "
            "scheme that has the workers it is given",
        ),
        (
            "mine = mypackage:misnamed",
            "mine",
            "mypackage:misnamed of mypackage 1.2 is registered as mine, and its scheme "
            "calls itself 'something', from which a trace cannot be replayed; "
            "try a scheme whose name begins with mine",
        ),
        ("mine = mypackage:mine", "mine(y=1)", "mine has no option y; try one of x"),
        ("mine = mypackage:none", "mine(1", "'mine(1' is not a scheme; try a name, "),
    ],
)
def test_what_is_wrong_with_a_registered_scheme_is_one_sentence(
    run: Run, tmp_path: Path, entries: str, text: str, said: str
) -> None:
    install(tmp_path / "site", entries)
    shown = run("simulate", "--workers", "4", "--steps", "5", "--scheme", text)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.count("\n") == 1
    assert shown.err.startswith(f"error: {said}")


def test_an_option_that_the_scheme_refuses_is_said_with_its_place(
    run: Run, tmp_path: Path
) -> None:
    module = install(tmp_path / "site", "mine = mypackage:mine")
    shown = run("simulate", "--workers", "4", "--scheme", "mine(x=101)")
    line = 1 + module.read_text().splitlines().index(
        '        raise ValueError(f"x = {x} is more than 100")'
    )
    assert shown.code == 2
    assert shown.err == (
        "error: mine(x=101) fails with 4 workers: ValueError: x = 101 is more than 100 "
        f'({module}, line {line}); try other options (codedgrad schemes "mine" lists '
        "them), or mending it\n"
    )
    assert run("simulate", "--scheme", "mine(x=100)", "--steps", "2").code == 0


def test_two_packages_with_one_name_are_told_apart_by_a_sentence(
    run: Run, tmp_path: Path
) -> None:
    install(tmp_path / "site", "mine = mypackage:mine")
    install(tmp_path / "site", "mine = other:mine", package="other")
    shown = run("simulate", "--scheme", "mine")
    assert shown.code == 2
    assert "there are 2 schemes called mine: of " in shown.err
    assert "mypackage 1.2 (mypackage:mine)" in shown.err
    assert "other 1.2 (other:mine)" in shown.err
    listed = run("schemes").out
    assert listed.count("Cannot be used: the name is taken twice.") == 2


def test_a_clash_leaves_other_schemes_alone(run: Run, tmp_path: Path) -> None:
    install(tmp_path / "site", "auto = mypackage:mine")
    assert run("simulate", "--steps", "5", "--scheme", "uncoded").code == 0
    assert "Cannot be used: the name is taken twice." in run("schemes").out


TRAINING = """
import torch
import codedgrad as cg

def job():
    x = torch.linspace(0, 1, 16).reshape(16, 1)
    return cg.torch.Job(torch.nn.Linear(1, 1), torch.nn.MSELoss(), (x, x), batch_size=8)

for resume in (False, True):
    given = dict(run_dir="run", resume=resume, engine="here", progress=False)
    with cg.torch.train(job, scheme="mine(x=2)", workers=2, **given) as coded:
        optimizer = torch.optim.SGD(coded.model.parameters(), lr=0.1)
        coded.track(optimizer=optimizer)
        for step in coded.steps(4 if resume else 2):
            coded.backward()
            optimizer.step()
print(step, coded.scheme.name)
"""

REPLAY = """
from codedgrad.schemes import build
from codedgrad.trace import read, replay

trace = read("traces/mine-x=2.jsonl")
print(trace.header.scheme)
print(replay(trace, build(trace.header.scheme, trace.header.workers)))
"""


@pytest.mark.long
def test_training_and_resuming_with_a_registered_scheme(tmp_path: Path) -> None:
    install(tmp_path / "site", "mine = mypackage:mine")
    trained = started("-c", TRAINING, site=tmp_path / "site", cwd=tmp_path)
    assert trained.code == 0, trained.err
    assert trained.out == "3 mine(x=2)\n"


def test_a_trace_is_replayed_where_its_scheme_is_installed(tmp_path: Path) -> None:
    install(tmp_path / "site", "mine = mypackage:mine")
    written = started(
        *shlex.split("-m codedgrad simulate --workers 3 --steps 4 --trace traces"),
        *("--scheme", "mine(x=2)"),
        site=tmp_path / "site",
        cwd=tmp_path,
    )
    assert written.code == 0, written.err
    replayed = started("-c", REPLAY, site=tmp_path / "site", cwd=tmp_path)
    assert replayed.out == "mine(x=2)\nNone\n", replayed.err
    without = started("-c", REPLAY, site=None, cwd=tmp_path)
    assert without.code == 1
    assert "InvalidScheme: there is no scheme 'mine'; try one of auto" in without.err
    assert "; or installing the package that registers it" in without.err


# -- in a file -----------------------------------------------------------------------


def test_a_scheme_may_be_a_file_on_the_command_line(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "schemes of mine"
    folder.mkdir()
    (folder / "neighbour.py").write_text("PIECES = 2\n")
    (folder / "my_scheme.py").write_text(
        "from codedgrad.schemes import uncoded\n"
        "from neighbour import PIECES\n"
        "print('executed')\n"
        "def Mine(workers, option=1):\n"
        "    return uncoded(workers, pieces=PIECES * option)\n"
    )
    shown = run(
        *("simulate", "--workers", "3", "--steps", "4"),
        *("--scheme", "schemes of mine/my_scheme.py:Mine(option=3)"),
        *("--scheme", f"{folder}/my_scheme.py:Mine( 4 )"),
    )
    assert shown.code == 0, shown.err
    assert "uncoded(pieces=6)" in shown.out
    assert "uncoded(pieces=8)" in shown.out
    assert shown.out.count("executed\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("./absent.py:Mine", "there is no file ./absent.py; try the path of a Python"),
        (
            "./mypackage.py",
            "./mypackage.py names a file, and no scheme in it; try ./mypackage.py:NAME",
        ),
        (
            "mypackage.py:Mine",
            "mypackage.py has no Mine; try one of mine, preset, misnamed, fewer, "
            "starred, none, Half",
        ),
        ("mypackage.py:number", "mypackage.py:number is of type int and makes no"),
        ("mypackage.py:Half", "mypackage.py:Half makes a Half, which is no scheme"),
        (
            "mypackage.py:mine(yy=3)",
            "mypackage.py:mine has no option yy; try one of x",
        ),
        ("mypackage.py:mine(x=[)", "'mypackage.py:mine(x=[)' has an odd bracket"),
        ("mypackage.py:mine(x=101)", "mypackage.py:mine(x=101) fails with 4 workers"),
        (
            "syntax.py:mine",
            "syntax.py cannot be run: SyntaxError: invalid syntax (syntax.py, line 1); "
            "try mending that file",
        ),
        (
            "leaving.py:mine",
            "leaving.py cannot be run: SystemExit: 3 ({folder}/leaving.py, line 2); "
            "try mending that file",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(
    run: Run, tmp_path: Path, text: str, said: str
) -> None:
    Path("mypackage.py").write_text(MINE)
    Path("syntax.py").write_text("def mine(:\n")
    Path("leaving.py").write_text("import sys\nsys.exit(3)\n")
    shown = run("simulate", "--workers", "4", "--steps", "5", "--scheme", text)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.count("\n") == 1
    assert shown.err.startswith(f"error: {said.format(folder=tmp_path)}")


@pytest.mark.parametrize(
    "schemes",
    [
        '["uncoded", "./mypackage.py:mine(x=2)"]',
        '[{name = "./mypackage.py:mine", x = 2}]',
        '[{scheme = "mypackage.py"}]',
    ],
)
def test_a_scenario_cannot_have_a_file_executed(
    run: Run, tmp_path: Path, schemes: str
) -> None:
    Path("mypackage.py").write_text(MINE)
    law = 'delays = ["shifted-exponential(floor=1, mean=0.1)"]\n'
    Path("own.toml").write_text(f"schemes = {schemes}\n{law}")
    shown = run("simulate", "own.toml")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.count("\n") == 1
    assert "own.toml: schemes[" in shown.err
    assert "names a Python file, and only the command line runs one" in shown.err
    assert not Path("imported").exists()
    typed = ("--steps", "5", "--scheme", "./mypackage.py:mine(x=2)")
    assert run("simulate", "own.toml", *typed).code == 0  # a flag, by a person
    assert Path("imported").exists()


# -- the document --------------------------------------------------------------------


@pytest.mark.long
def test_the_document_shows_what_the_commands_print(tmp_path: Path) -> None:
    document = DOCUMENT.read_text()
    [file] = re.findall(r"```python\n(# speculative\.py\n.*?)```", document, re.DOTALL)
    [entry] = re.findall(r'entry-points\."codedgrad\.schemes"\]\n(.*)\n', document)
    site = tmp_path / "site"
    module = install(site, entry.replace('"', ""), file, package="speculative")
    metadata = site / "speculative-1.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.2", "1.0"))
    (tmp_path / "speculative.py").write_text(module.read_text())
    shape = r"```text\n\$ codedgrad ((?:[^\n]*\\\n)*[^\n]*)\n(.*?)```"
    blocks = re.findall(shape, document, re.DOTALL)
    assert len(blocks) == 3
    for command, promised in blocks:
        words = ("-m", "codedgrad", *shlex.split(command.replace("\\\n", " ")))
        shown = started(*words, site=site, cwd=tmp_path)
        assert shown.code == 0, shown.err
        assert shown.out == promised
