"""A bar, where somebody is looking and it takes long enough."""

import io
import sys

import pytest
from rich.console import Console

from codedgrad.cli.bars import bar


@pytest.mark.parametrize(
    ("is_terminal", "patience", "is_shown"),
    [(True, 0.0, True), (True, 1e9, False), (False, 0.0, False)],
)
def test_a_bar_is_shown_on_a_terminal_after_a_while_and_then_gone(
    is_terminal: bool,
    patience: float,
    is_shown: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = io.StringIO()
    module = sys.modules["codedgrad.cli.bars"]
    console = Console(file=text, force_terminal=is_terminal, width=80)
    monkeypatch.setattr(module, "Console", lambda stderr: console)
    monkeypatch.setattr(module, "_PATIENCE", patience)
    with bar("measuring", "steps") as advanced:
        advanced(1, 4)
        advanced(4, 4)
    assert ("measuring" in text.getvalue()) is is_shown
    assert ("steps, left" in text.getvalue()) is is_shown
