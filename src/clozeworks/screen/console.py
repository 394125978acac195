"""How commands speak: plain in a pipe, in colour on a terminal, JSON when asked."""

import errno
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from clozeworks.core.characters import OBEYED, show_controls

FIGURES = 12  # characters of a number at most
WIDTH, HEIGHT, WIDTHS = 80, 25, range(20, 1000)  # of a terminal: usual, and believed where COLUMNS says so


_ESCAPED = {code: f"\\u{code:04x}" for code in OBEYED}  # in JSON, where those below 32 are escaped already


class SafeConsole(Console):
    """A console whose texts, which may come from anywhere, command nothing: escapes are rich's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(show_controls(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Whoever called decides what it means; rich would end the process with 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def screen(stderr: bool = False) -> Console:
    """rich knows about pipes, NO_COLOR and dumb terminals; numbers are not coloured for their own sake."""
    asked = os.environ.get("COLUMNS", str(WIDTH))
    sound = asked.isdecimal() and int(asked[:9]) in WIDTHS
    width, height = (None, None) if sound else (WIDTH, HEIGHT)  # given both, rich does not read COLUMNS itself
    return SafeConsole(stderr=stderr, highlight=False, width=width, height=height)


def emit(value: Any) -> None:
    """One JSON object on one line of standard output; what is not finite, which JSON cannot say, is null."""
    print(json_line(value, sys.stdout.encoding), flush=True)


def json_line(value: Any, encoding: str | None = None) -> str:
    """A value as JSON that commands no terminal; where the encoding lacks a letter, all of them are escaped."""
    line = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str)
    try:
        line.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(finite(value), allow_nan=False, default=str)
    return line.translate(_ESCAPED)


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Names on the left, values on the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return table


def columns(*names: str, right: Iterable[str] = ()) -> Table:
    """A table without lines; the names in `right` are columns of numbers. The first column is never broken, nor are
    numbers: where there is no room, a long name above them is."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in names:
        whole = name == names[0] or (name in right and len(name) <= FIGURES)
        table.add_column(Text(name), justify="right" if name in right else "left", no_wrap=whole, overflow="fold")
    return table


def closing(console: Console, wrote: str | None, *commands: str, words: tuple[str, str] = ("wrote", "next")) -> None:
    """What was written, and what to type now. Commands are never broken over lines: they are there to be copied."""
    console.print()
    width = max(map(cell_len, words)) + 2
    lines = [(words[0], wrote, "")] if wrote else []
    typed = [re.sub(r"^(.* \| )?clozeworks(?= )", rf"\1{program()}", command) for command in commands]
    lines += [(words[1] if number == 0 else "", command, "cyan") for number, command in enumerate(typed)]
    for label, content, style in lines:
        text = Text.assemble((label, "bold"), " " * (width - cell_len(label)), (content, style))
        console.print(text, soft_wrap=True)


def program() -> str:
    """What to type for `clozeworks` here: after `make quickstart` the environment is not activated."""
    here = Path(sys.argv[0])
    installed = shutil.which("clozeworks")
    if here.stem != "clozeworks" or not here.is_file() or (installed and Path(installed).samefile(here)):
        return "clozeworks"
    return shlex.quote(os.path.relpath(here) if here.is_relative_to(Path.cwd()) else str(here))


def note(console: Console, text: str) -> None:
    """Something the user should hear about."""
    console.print(Text.assemble(("note  ", "yellow"), text), soft_wrap=not console.is_terminal)


def short(number: float) -> str:
    """1234567 -> 1.2 million."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(number) >= size:
            return f"{number / size:,.1f} {name}"
    return f"{number:,.0f}"


def size(count: float) -> str:
    """Bytes as people say them."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
