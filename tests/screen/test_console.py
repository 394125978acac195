"""What is printed commands no terminal, whoever wrote it."""

import io
import json

import pytest
from rich.table import Table
from rich.text import Text

from clozeworks.core.characters import show_controls
from clozeworks.screen.console import SafeConsole, emit, facts

HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\x9bd\x7fe\u202ef\u2066g\rh\x00"


def test_texts_lose_what_a_terminal_obeys():
    out = io.StringIO()
    console = SafeConsole(file=out, width=200, force_terminal=True, highlight=False)
    table = Table()
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE, style="bold"))
    for thing in (HOSTILE, Text(HOSTILE), table, facts([("name", HOSTILE)])):
        console.print(thing, markup=False)
    written = out.getvalue()
    for harm in ("\x1b[2J", "\x1b]0", "\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\r", "\x00"):
        assert harm not in written, repr(harm)
    assert "\x1b[1m" in written  # rich's own
    assert "\ufffd" in written
    assert show_controls("tab\tand\nline, 中文 é") == "tab\tand\nline, 中文 é"


def test_json_says_it_in_escapes(capsys: pytest.CaptureFixture[str]):
    emit({"text": HOSTILE, "中": 1.5})
    line = capsys.readouterr().out
    assert json.loads(line) == {"text": HOSTILE, "中": 1.5}
    assert "中" in line
    assert not set(line.strip()) & set("\x1b\x07\x9b\x7f\u202e\u2066\r\x00")
