"""Whatever is wrong with a command line is one sentence and exit code 2."""

import sys

import pytest

from codedgrad.cli import main


def shown(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["codedgrad", *words.split()])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return end.value.code, out, err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("simulate --steps two", "--steps"),
        ("simulate --nope", "No such option: --nope"),
        ("simulate a.toml b.toml", "unexpected extra argument"),
        ("simulate --workers", "--workers"),
        ("nope", "No such command 'nope'"),
        ("demo --workers 0", "--workers"),
        ("schemes cyclc", "there is no scheme 'cyclc'; try cyclic"),
        ("simulate nope.toml", "nope.toml"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(
    words: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = shown(words, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert why in err


def test_without_words_there_is_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = shown("", monkeypatch, capsys)
    assert (code, err) == (2, "")
    for verb in ("demo", "simulate", "schemes"):
        assert verb in out


@pytest.mark.parametrize("words", ["--help", "--version", "schemes", "schemes cyclic"])
def test_what_is_right_ends_with_0(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = shown(words, monkeypatch, capsys)
    assert (code, err) == (0, "")
    assert out
