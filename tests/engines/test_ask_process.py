"""Nobody is waited for longer than said, and nobody is left behind."""

import os
import select
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from codedgrad.engines.ask_process import Answer, ask

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    open(sys.argv[1], "w").write(str(os.getpid()))
print("begun", flush=True)
time.sleep(600)
"""


def test_an_answer_has_exit_code_and_both_texts() -> None:
    script = "import sys; print('out'); sys.stderr.write('a\\nwhy\\n\\n'); sys.exit(3)"
    answer = ask([sys.executable, "-c", script], seconds=100)
    assert answer == Answer(3, "out\n", "a\nwhy\n\n")
    assert answer.last == "why"


def test_the_last_word_may_be_on_either_or_on_none() -> None:
    assert Answer(1, "first\nlast\n", "").last == "last"
    assert Answer(1, "", "").last == ""


def test_an_error_is_found_among_what_a_launcher_adds() -> None:
    said = (
        "Traceback ...\n  raise\nOSError: no room\n-----\none of three has ended\n--\n"
    )
    assert Answer(1, "", said).last == "OSError: no room"
    assert Answer(1, "", "three have ended\n-----\n").last == "three have ended"


def test_variables_are_set_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    script = "import os; print(os.environ['OURS'] + os.environ['THEIRS'])"
    answer = ask([sys.executable, "-c", script], 100, {"THEIRS": "2"})
    assert answer.out == "12\n"


def test_who_takes_too_long_is_ended_with_all_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codedgrad.engines.ask_process._GRACE", 0.01)
    child = tmp_path / "child"
    seconds = 1.0
    while True:  # on a busy machine it may not even have begun
        answer = ask([sys.executable, "-c", STUBBORN, str(child)], seconds)
        assert answer.code is None
        if child.exists() and child.read_text() and answer.out:
            break
        seconds *= 2
    with suppress(ProcessLookupError):  # gone already
        ended = os.pidfd_open(int(child.read_text()))
        assert select.select([ended], [], [], 60)[0]
        os.close(ended)


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask([os.fspath(tmp_path / "nothing")], seconds=100)
